//! Flapping devices: a device that goes out again soon after its return has to stay out for longer each time. This part decides how long.

use braid_base::Time;
use braid_base::limits::Settings;
use std::time::Duration;

/// A device that is marked out again within this time of its return has to stay out for longer.
const STEADY: Duration = Duration::from_secs(60);

/// For so long a device that came and went is shown as such.
const FLAPPING_SHOWN: Duration = Duration::from_secs(600);

/// The outages of a device, and how long it has to stay out.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outages {
    /// When it was marked out, and how long it has to stay out from then on.
    taken_out: Time,
    wait: Duration,
    /// When it last returned.
    came_back: Option<Time>,
    /// How often it was marked out, each time but the first soon after its return.
    count: u32,
}

impl Outages {
    pub fn none(started: Time, settings: &Settings) -> Outages {
        Outages { taken_out: started, wait: settings.readmission_min, ..Outages::default() }
    }

    /// The device is marked out. If an operator wished that, it did not go out by itself.
    pub fn begin(&mut self, now: Time, settings: &Settings, is_wished: bool) {
        let soon = !is_wished && self.came_back.is_some_and(|back| now.since(back) < STEADY);
        self.count = if soon { self.count.saturating_add(1) } else { 1 };
        self.wait = if soon { (self.wait * 2).min(settings.readmission_max) } else { settings.readmission_min };
        self.taken_out = now;
    }

    /// The device returns.
    pub fn end(&mut self, now: Time) {
        self.came_back = Some(now);
    }

    /// True if the device has been out for long enough to return.
    pub fn may_end(&self, now: Time) -> bool {
        now >= self.taken_out.after(self.wait)
    }

    /// True if the device, which is out, was marked out at least `span` ago.
    pub fn is_out_for(&self, span: Duration, now: Time) -> bool {
        now.since(self.taken_out) >= span
    }

    /// How often it went out in a row, and until when it has to stay out because of that.
    pub fn flapping(&self, now: Time, has_lease: bool) -> (u32, Option<Time>) {
        let Outages { taken_out, wait, came_back, count } = *self;
        let is_late = now.since(came_back.map_or(taken_out, |back| back.max(taken_out))) > FLAPPING_SHOWN;
        if count < 2 || is_late {
            return (0, None);
        }
        let until = taken_out.after(wait);
        (count, Some(until).filter(|until| !has_lease && now < *until))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flapping_device_waits_longer_each_time() {
        let settings = Settings::default();
        let mut now = Time(1_000_000_000_000);
        let mut outages = Outages::none(Time(0), &settings);
        let mut waits = Vec::new();
        for _ in 0..9 {
            outages.begin(now, &settings, false);
            let taken_out = now;
            let count = waits.len() as u32 + 1;
            let shown = if count > 1 { (count, Some(now.after(outages.wait))) } else { (0, None) };
            assert_eq!(outages.flapping(now, false), shown);
            while !outages.may_end(now) {
                now = now.after(Duration::from_millis(500));
            }
            waits.push(now.since(taken_out).as_secs());
            outages.end(now);
            now = now.after(STEADY - Duration::from_secs(1));
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        now = now.after(Duration::from_secs(1));
        assert_eq!(outages.flapping(now, true), (9, None), "it is in");
        assert_eq!(outages.flapping(now.after(FLAPPING_SHOWN), true), (0, None));
        let mut wished = outages;
        wished.end(now);
        wished.begin(now, &settings, true);
        assert_eq!((wished.flapping(now, false), wished.wait), ((0, None), settings.readmission_min), "by an operator");
        outages.begin(now, &settings, false);
        assert!(outages.may_end(now.after(Duration::from_secs(1))), "it had stayed");
    }
}
