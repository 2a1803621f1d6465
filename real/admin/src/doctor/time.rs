//! Checks of what depends on time: wall clocks, leases, and transactions that nobody decides.

use super::examination::{Examination, subject_of};
use super::finding::{Findings, Severity, Subject};
use crate::health::DeviceHealth;
use braid_base::DeviceId;
use braid_base::limits::Settings;
use braid_control::{Refusal, ReportedState};
use braid_session::CLOCK_COUNTER;
use std::time::Duration;

/// Two clocks may differ by so much without a finding: NTP does much better.
const CLOCK_DIFFERENCE_USUAL: Duration = Duration::from_secs(1);
/// A device that answers sooner is not slow: a disk that turns and is busy takes as long.
const SLOW: Duration = Duration::from_millis(75);
/// A slow device takes so many times as long as most devices.
const SLOWER_THAN_USUAL: u32 = 8;
/// The response time is a mean over at most this time: a device that has come in within it has pauses of its start or its rebuild in it.
const MEAN_OVER: Duration = Duration::from_secs(20);
/// For how many leases orphans may be unresolved. A host becomes silent after one, and other hosts then resolve what it left.
const LEASES_OF_AN_ORPHAN: u32 = 4;
/// For how many further leases a silent host may be there that should have been fenced.
const LEASES_OF_A_FENCE: u32 = 3;

/// The wall clocks of devices and hosts.
pub fn clocks(examination: &Examination, found: &mut Findings) {
    let look = examination.look;
    for entry in &look.description.devices {
        let subject = Subject::Device(DeviceId(entry.id));
        match look.states.get(&DeviceId(entry.id)).map(|state| (state.clock_ahead_millis, &state.health)) {
            Some((Some(ahead), _)) => clock(subject, ahead, found),
            Some((None, DeviceHealth::Silent(_))) | None => found.not_checked(&subject, look.why_untold()),
            Some((None, _)) => found.not_checked(&subject, "it is of a release that does not tell its clock"),
        }
    }
    let published = look.hosts.iter().map(|host| (subject_of(look, host), host.silent, &host.report.counters));
    let monitor = look.monitor.iter().map(|monitor| (Subject::Monitor, monitor.age, &monitor.report.counters));
    for (subject, age, counters) in monitor.chain(published) {
        match (age, counters.get(CLOCK_COUNTER)) {
            (Some(age), Some(clock_then)) => {
                let ours_then = look.now.saturating_sub(age.as_millis() as u64);
                let clock_then = i64::try_from(*clock_then).unwrap_or(i64::MAX);
                clock(subject, clock_then.saturating_sub_unsigned(ours_then), found);
            }
            // A command that has just begun has published nothing yet.
            (Some(_), None) => {}
            (None, _) => found.not_checked(&subject, "its last report is of another boot of the machine"),
        }
    }
    if let Some(ahead) = look.monitor.as_ref().and_then(|monitor| monitor.report.stamps_ahead_millis) {
        let ahead = braid_machine::rough(Duration::from_millis(ahead));
        let text =
            format!("has stamps that are {ahead} ahead of the clock, because some clock was wrong or was set back");
        found.note(Subject::Array, text);
    }
}

fn clock(subject: Subject, ahead_millis: i64, found: &mut Findings) {
    let difference = Duration::from_millis(ahead_millis.unsigned_abs());
    let refused_from = Settings::default().stamp_ahead_max;
    if difference <= CLOCK_DIFFERENCE_USUAL {
        return;
    }
    let severity = if difference >= refused_from { Severity::Error } else { Severity::Warning };
    let side = if ahead_millis > 0 { "ahead of" } else { "behind" };
    let text = format!("has a clock that is {:.1} s {side} the clock of this machine", difference.as_secs_f64());
    let action = format!(
        "synchronise the clocks of all machines, with NTP for example: devices refuse requests whose clock is more than {} s ahead of their own",
        refused_from.as_secs()
    );
    found.found(severity, subject, text, action);
}

/// Devices that answer more slowly than the others, of those that serve, and are in for long enough to be judged.
pub fn speed(examination: &Examination, found: &mut Findings) {
    let look = examination.look;
    let is_settled = |id: &DeviceId| {
        let is_old = |changed: u64| Duration::from_millis(look.now.saturating_sub(changed)) >= MEAN_OVER;
        let report = look.member_state(*id).filter(|report| report.member_state == ReportedState::In);
        look.device_health(*id).may_serve() && report.is_some_and(|report| report.changed.is_none_or(is_old))
    };
    let devices = look.description.devices.iter().map(|entry| DeviceId(entry.id)).filter(is_settled);
    let mut times: Vec<_> = devices.filter_map(|id| Some((look.response_time(id)?, id))).collect();
    times.sort();
    // Of two devices, the other one.
    let Some((usual, _)) = times.get(times.len().saturating_sub(1) / 2).copied() else { return };
    for (time, id) in times.into_iter().filter(|(time, _)| *time > SLOW && *time > usual * SLOWER_THAN_USUAL) {
        let millis = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1000.0);
        let text = format!(
            "answers slowly: heartbeats or its disk take {}, and {} with most devices; writes to its stripes are as slow as it",
            millis(time),
            millis(usual)
        );
        let action = format!(
            "look for errors of its disk and for other load of its machine; take it out if that helps: `braid device fail {}`",
            id.0
        );
        found.warning(Subject::Device(id), text, action);
    }
}

/// Leases that are not renewed.
pub fn leases(examination: &Examination, found: &mut Findings) {
    let look = examination.look;
    let leases = look.description.leases();
    for entry in &look.description.devices {
        let (id, subject) = (DeviceId(entry.id), Subject::Device(DeviceId(entry.id)));
        if look.device_health(id) == DeviceHealth::NoLease {
            let action = "see what is said of the monitor; if it serves, check that the device reaches it";
            found.error(subject, "has no lease from the monitor, and serves nobody", action);
            continue;
        }
        let report = look.member_state(id).filter(|report| report.member_state == ReportedState::In);
        let heard = report.and_then(|report| report.heard_millis).map(Duration::from_millis);
        let is_late = |heard: &Duration| *heard > leases.lease() && !examination.is_suspended(&subject);
        if let Some(heard) = heard.filter(is_late) {
            let text = format!("has not renewed its lease at the monitor for {} s", heard.as_secs());
            found.warning(subject, text, "see what keeps its process from the monitor");
        }
    }
    for host in look.hosts.iter().filter(|host| !host.live) {
        let subject = subject_of(look, host);
        // Longer than that, it should have been fenced.
        let longest = leases.host() + leases.lease() * LEASES_OF_A_FENCE;
        match host.silent.filter(|silent| *silent <= longest) {
            Some(_) if host.process.has_ended() => {
                found.note(subject, "has ended without giving up its lease, and is fenced in a while");
            }
            // Nobody is fenced while no host can renew its lease.
            _ if look.refusal == Some(Refusal::ReadOnly) => {
                found.note(subject, "can't renew its lease while the folder is read-only, and keeps it");
            }
            Some(silent) => {
                let (silent, most) = (silent.as_secs(), leases.host().as_secs());
                let text = format!("has not renewed its lease for {silent} s, and loses it after {most} s");
                let action = format!("see what keeps {}: it may be suspended", host.process);
                found.warning(subject, text, action);
            }
            None => {
                let action = "see the log of `braid up`, which fences silent hosts, and what is said of the monitor";
                found.warning(subject, "has lost its lease, and is not fenced yet", action);
            }
        }
    }
}

/// Transactions that stay undecided.
pub fn transactions(examination: &Examination, found: &mut Findings) {
    let look = examination.look;
    let leases = look.description.leases();
    let orphans_end = leases.lease() * LEASES_OF_AN_ORPHAN;
    // A host gives up an attempt within its time-out; if it dies meanwhile, others resolve the attempt after its lease.
    let all_end = Settings::default().request_timeout + leases.host();
    for entry in &look.description.devices {
        let (id, subject) = (DeviceId(entry.id), Subject::Device(DeviceId(entry.id)));
        let Some(state) = look.states.get(&id).filter(|state| !state.counters.is_empty()) else {
            found.not_checked(&subject, look.why_untold());
            continue;
        };
        let count = |name| state.counter(name).unwrap_or_default();
        let oldest = |name| state.counter(name).map(Duration::from_millis);
        let (Some(orphan), Some(undecided)) = (oldest("oldest_orphan_millis"), oldest("oldest_undecided_millis"))
        else {
            found.not_checked(&subject, "it is of a release that does not tell the age of transactions");
            continue;
        };
        let unresolved = count("orphans") + count("suspects");
        if unresolved > 0 && orphan > orphans_end {
            let age = braid_machine::rough(orphan);
            let text = format!(
                "has {unresolved} transactions of hosts that are gone, undecided for {age}: their blocks can't be used"
            );
            let action = "bring back the devices that take part in them: hosts decide them when all of these answer";
            found.error(subject, text, action);
        } else if undecided > all_end {
            let age = braid_machine::rough(undecided);
            let text = format!("has {} undecided transactions, the oldest for {age}", count("undecided"));
            let action = "find the host that does not end them: `braid status --verbose` lists what hosts do; end it, and it is fenced";
            found.warning(subject, text, action);
        }
    }
}
