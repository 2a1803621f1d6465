//! Events and rates that follow from successive reports of the monitor: the time since which a device is in its state, the rate at which
//! it is resynchronised, and the changes to be recorded in the event log. The texts of the events are in
//! `real/control/src/event_texts.rs`.

use braid_admin::device_condition::throttle_words;
use braid_control::event_texts::{self, Restored};
use braid_control::{DeviceReport, Event, HealingReport, MonitorReport, ReportedState, unix_millis_now};
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// The interval over which rates are averaged.
const RATE_SPAN: Duration = Duration::from_secs(10);
/// The shortest interval over which a rate is computed.
const RATE_SPAN_MIN: Duration = Duration::from_secs(1);

/// The last report, and the recent progress of each device.
#[derive(Debug, Default)]
pub struct MembershipEvents {
    last: Option<MonitorReport>,
    rates: BTreeMap<u16, Rate>,
}

/// Recent progress, from which a rate is computed.
#[derive(Debug, Default)]
pub struct Rate {
    /// Times and amounts, both ascending.
    looks: VecDeque<(Instant, u64)>,
}

impl MembershipEvents {
    /// Continues from the last report of the previous monitor, if there is one.
    pub fn after(last: Option<MonitorReport>) -> MembershipEvents {
        MembershipEvents { last, rates: BTreeMap::new() }
    }

    /// Completes a report with values that depend on earlier reports. Returns the events that happened since the last report.
    pub fn take(&mut self, report: &mut MonitorReport, now: Instant) -> Vec<Event> {
        let mut events = Vec::new();
        let millis = unix_millis_now();
        let last = self.last.take();
        for device in &mut report.devices {
            let before = last.iter().flat_map(|last| &last.devices).find(|before| before.id == device.id);
            self.carry_on(before, device, (now, millis));
            if let (Some(before), Some(last)) = (before, &last) {
                events.extend(of_slot(before, device, last));
                events.extend(of_state(before, device, millis));
            }
        }
        if let Some(last) = last.filter(|last| last.throttle != report.throttle) {
            let (before, now) = (throttle_words(&last.throttle), throttle_words(&report.throttle));
            events.push(event_texts::throttle_changed(&before, &now, report.throttle.bytes_per_second));
        }
        self.last = Some(report.clone());
        events
    }

    fn carry_on(&mut self, before: Option<&DeviceReport>, device: &mut DeviceReport, (now, millis): (Instant, u64)) {
        if let Some(before) = before {
            let is_the_same = (before.member_state, before.since) == (device.member_state, device.since);
            device.changed = if is_the_same { before.changed } else { Some(millis) };
            let is_another = device.awaited_disk.is_some() || (before.disk.is_some() && before.disk != device.disk);
            device.blank = device.member_state != ReportedState::In && (before.blank || is_another);
        }
        let helped = before.is_some_and(|before| {
            (before.recovery_coordinator, before.since) == (device.recovery_coordinator, device.since)
        });
        match &mut device.healing {
            Some(healing) if device.member_state == ReportedState::Returning => {
                let rate = self.rates.entry(device.id).or_default();
                if !helped {
                    *rate = Rate::default();
                }
                rate.look(now, healing.done);
                healing.bytes_per_second = rate.per_second();
            }
            _ => {
                self.rates.remove(&device.id);
            }
        }
    }
}

impl Rate {
    /// Records the amount done so far.
    pub fn look(&mut self, now: Instant, done: u64) {
        if self.looks.back().is_some_and(|(_, last)| done < *last) {
            self.looks.clear();
        }
        while self.looks.get(1).is_some_and(|(when, _)| now - *when >= RATE_SPAN) {
            self.looks.pop_front();
        }
        self.looks.push_back((now, done));
    }

    /// The amount per second; none if the time observed is too short.
    pub fn per_second(&self) -> Option<u64> {
        let (first, last) = (self.looks.front()?, self.looks.back()?);
        let span = last.0 - first.0;
        (span >= RATE_SPAN_MIN).then(|| ((last.1 - first.1) as f64 / span.as_secs_f64()) as u64)
    }
}

/// Events about the disk in a device's slot.
fn of_slot(before: &DeviceReport, device: &DeviceReport, last: &MonitorReport) -> Vec<Event> {
    let id = device.id;
    let mut events = Vec::new();
    match (before.kept_out, device.kept_out) {
        (false, true) => events.push(event_texts::device_taken_out(id)),
        (true, false) if device.awaited_disk.is_none() => events.push(event_texts::device_allowed_to_return(id)),
        _ => {}
    }
    if device.failing && !before.failing {
        events.push(event_texts::disk_failing(id, device.bad_slots));
    } else if device.bad_slots > before.bad_slots && before.disk == device.disk {
        events.push(event_texts::disk_errors(id, device.bad_slots));
    }
    if let Some(disk) = device.next_disk.as_ref().filter(|_| before.next_disk != device.next_disk) {
        events.push(event_texts::disk_to_be_replaced(id, disk));
    }
    if let Some(disk) = device.awaited_disk.as_ref().filter(|_| before.awaited_disk != device.awaited_disk) {
        let is_spare = last.spares.iter().any(|spare| spare.disk == *disk);
        events.push(match is_spare {
            true => event_texts::spare_taken(id, disk),
            false => event_texts::disk_replaced(id, disk),
        });
    }
    // While another disk is awaited, the refusal is that of the previous disk, which was reported already.
    let is_news = |why: &String| device.awaited_disk.is_none() && before.refusal().as_ref() != Some(why);
    if let Some(why) = device.refusal().filter(is_news) {
        events.push(event_texts::device_refused(id, &why));
    }
    events
}

/// Events about the membership state of a device.
fn of_state(before: &DeviceReport, device: &DeviceReport, millis: u64) -> Vec<Event> {
    use ReportedState::{In, Out, Returning, Unavailable};
    let id = device.id;
    // The recovery coordinator's last report comes just before the device is in.
    let HealingReport { done, lost, .. } =
        device.healing.as_ref().or(before.healing.as_ref()).cloned().unwrap_or_default();
    let millis = before.changed.map_or(0, |changed| millis.saturating_sub(changed));
    let restored = Restored { bytes: done, lost_blocks: lost, millis };
    match (before.member_state, device.member_state) {
        (In | Unavailable | Returning, Out) => {
            let mut events = vec![event_texts::device_out(id, device.outages, device.stays_out_millis)];
            if before.member_state == Returning && before.blank {
                events.push(event_texts::rebuild_stopped(id, restored));
            }
            events
        }
        (In, Unavailable) => vec![event_texts::device_unavailable(id)],
        (Unavailable, In) => vec![event_texts::device_answers_again(id)],
        (In | Unavailable | Out, Returning) if device.blank => {
            vec![event_texts::device_returning_with_another_disk(id), event_texts::rebuild_begun(id)]
        }
        (In | Unavailable | Out, Returning) => vec![event_texts::device_returning(id)],
        (Returning, In) => {
            let mut events = Vec::new();
            if before.blank {
                events.push(event_texts::rebuild_ended(id, restored));
            }
            events.push(event_texts::device_in(id, restored));
            events
        }
        // The returning state was not observed.
        (Out, In) => vec![event_texts::device_in_unobserved(id)],
        (In, In) | (Returning, Returning) if before.since != device.since => {
            vec![event_texts::device_out(id, device.outages, None), event_texts::device_returning_after_a_moment(id)]
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ReportedState::{In, Out, Returning, Unavailable};
    use braid_control::{EventKind, SpareReport, ThrottleReport};

    fn report(device: DeviceReport) -> MonitorReport {
        MonitorReport {
            devices: vec![DeviceReport { id: 3, ..device }],
            spares: vec![SpareReport { disk: "s".into(), size_bytes: 1 }],
            ..MonitorReport::default()
        }
    }

    fn stands(member_state: ReportedState, since: u32) -> DeviceReport {
        let healing = (member_state == Returning).then(HealingReport::default);
        DeviceReport { member_state, since, disk: Some("a".into()), healing, ..DeviceReport::default() }
    }

    fn kinds(devices: Vec<DeviceReport>) -> Vec<EventKind> {
        let mut membership_events = MembershipEvents::default();
        let take = |device| membership_events.take(&mut report(device), Instant::now());
        devices.into_iter().flat_map(take).map(|event| event.kind).collect()
    }

    #[test]
    fn a_device_that_goes_out_and_returns_makes_events() {
        use EventKind::*;
        let went = kinds(vec![stands(In, 1), stands(In, 1), stands(Out, 2), stands(Returning, 3), stands(In, 3)]);
        assert_eq!(went, [DeviceOut, DeviceReturning, DeviceIn]);
        let again = DeviceReport { outages: 3, stays_out_millis: Some(3_900), ..stands(Out, 4) };
        let mut membership_events = MembershipEvents::after(Some(report(stands(In, 3))));
        let out = membership_events.take(&mut report(again), Instant::now()).remove(0);
        assert!(
            out.text.ends_with(
                "it went out 3 times, each time within a minute of its return, and stays out for 4 s at least"
            )
        );
        assert_eq!((out.figures["outages"], out.figures["stays_out_millis"]), (3, 3_900));
        assert_eq!(kinds(vec![stands(In, 1), stands(Unavailable, 1), stands(In, 1)]), [DeviceUnavailable, DeviceIn]);
        assert_eq!(
            kinds(vec![stands(In, 1), stands(In, 4)]),
            [DeviceOut, DeviceReturning],
            "the monitor missed the state in between"
        );
        assert_eq!(kinds(vec![stands(Out, 2)]), [], "the first report causes no events");
    }

    #[test]
    fn a_device_with_another_disk_is_rebuilt_until_it_is_in() {
        use EventKind::*;
        let awaited =
            |disk: &str| DeviceReport { disk: Some(disk.into()), awaited_disk: Some(disk.into()), ..stands(Out, 2) };
        let there = |member_state, since| DeviceReport { disk: Some("b".into()), ..stands(member_state, since) };
        let told = kinds(vec![
            stands(Out, 2),
            awaited("b"),
            there(Returning, 3),
            there(Out, 4),
            there(Returning, 5),
            there(In, 5),
            there(Out, 6),
            there(Returning, 7),
        ]);
        let rebuilt = [DeviceReturning, RebuildBegun, DeviceOut, RebuildEnded];
        let again = [DeviceReturning, RebuildBegun, RebuildEnded, DeviceIn, DeviceOut, DeviceReturning];
        assert_eq!(told, [&[DiskReplaced][..], &rebuilt, &again].concat());
        assert_eq!(kinds(vec![stands(Out, 2), awaited("s")]), [SpareTaken]);
        let held = DeviceReport { kept_out: true, ..stands(Out, 2) };
        let refused = DeviceReport { join_refused: Some("used".into()), ..held.clone() };
        assert_eq!(kinds(vec![stands(Out, 2), held, refused.clone(), refused]), [DeviceHeld, DeviceRefused]);
    }

    #[test]
    fn since_when_and_how_fast_is_carried_on() {
        let mut membership_events = MembershipEvents::default();
        let begun = Instant::now();
        let mut take = |device: DeviceReport, seconds| {
            let mut report = report(device);
            membership_events.take(&mut report, begun + Duration::from_secs(seconds));
            report.devices.remove(0)
        };
        let healing = |done| HealingReport { done, ..HealingReport::default() };
        let returning =
            |done| DeviceReport { healing: Some(healing(done)), recovery_coordinator: Some(1), ..stands(Returning, 2) };
        assert_eq!(take(stands(In, 1), 0).changed, None, "it is unknown");
        let first = take(returning(0), 1);
        assert!(first.changed.is_some() && first.healing.is_some_and(|healing| healing.bytes_per_second.is_none()));
        let rate = |device: DeviceReport| device.healing.and_then(|healing| healing.bytes_per_second);
        assert_eq!(rate(take(returning(1000), 3)), Some(500));
        assert_eq!(rate(take(returning(9000), 5)), Some(2250));
        assert_eq!(rate(take(returning(9000), 100)), Some(0), "no progress");
        assert_eq!(
            rate(take(DeviceReport { recovery_coordinator: Some(2), ..returning(10) }, 101)),
            None,
            "another recovery coordinator"
        );
    }

    #[test]
    fn a_change_of_throttle_makes_an_event() {
        let mut membership_events = MembershipEvents::after(Some(report(stands(In, 1))));
        let mut next = report(stands(In, 1));
        next.throttle = ThrottleReport { bytes_per_second: 1 << 20, share: 100, paused: true };
        let events = membership_events.take(&mut next, Instant::now());
        assert_eq!(events[0].kind, EventKind::ThrottleChanged);
        assert!(
            events[0].text.contains("paused (when resumed: also while users are active, at most 1 MiB/s)"),
            "{}",
            events[0].text
        );
    }
}
