//! Devices that name an epoch which the record does not know.
//!
//! Either the record is an old copy, or the device does not keep to the protocol. An old record must not be used: it may say that a device
//! is in which the others have done without since (`docs/membership.md`). A device that names epochs that never were must not stop the
//! array.
//!
//! | the device | what follows |
//! | --- | --- |
//! | has named an epoch of the record to this monitor before | It can't have heard of a later one since: it is refused |
//! | has not, and at least as many devices say the same as name epochs of the record | The record is old: the monitor stops |
//! | has not, and fewer devices say the same | It is refused, and the array goes on without it |
//!
//! A monitor that starts grants no lease before it has heard all devices, or has waited for them; then it counts for the first time. A
//! device counts for the record only if the record says that it is not out: one that was out knows nothing of later epochs.

use crate::device_leases::Device;
use crate::monitor_record::MonitorError;
use braid_base::limits::Settings;
use braid_base::{DeviceId, MemberState, Membership, Time};
use std::collections::BTreeMap;

/// For how many heartbeats the word of a device counts.
const HEARTBEATS: u32 = 4;

/// The error, if the record with this membership counts as an old copy.
pub(crate) fn record_is_old(
    devices: &BTreeMap<DeviceId, Device>,
    durable: &Membership,
    now: Time,
    settings: &Settings,
) -> Option<MonitorError> {
    let span = settings.heartbeat * HEARTBEATS;
    let against = devices.iter().filter(|(_, known)| known.says_record_is_old(span, now));
    let named = against.clone().filter_map(|(device, known)| Some((*device, known.ahead?.0)));
    let (device, theirs) = named.max_by_key(|(_, epoch)| *epoch)?;
    let is_there = |device| durable.member(device).is_some_and(|member| member.member_state != MemberState::Out);
    let for_it = devices.iter().filter(|(device, known)| is_there(**device) && known.agrees_with_record(span, now));
    (against.count() >= for_it.count()).then_some(MonitorError::Behind { device, theirs, ours: durable.epoch })
}
