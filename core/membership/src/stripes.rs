//! Which devices depend on each other: those that have units of one stripe. All but one of them must be there.

use braid_base::{DeviceId, VolumeId, limits};
use braid_layout::{Layout, VolumeDescription};
use std::collections::BTreeMap;

/// The volumes that do without any one of their devices.
#[derive(Debug, Default)]
pub(crate) struct Stripes(BTreeMap<VolumeId, VolumeDescription>);

impl Stripes {
    /// Takes in a volume, or the new description of one. False if there are too many.
    pub fn adopt(&mut self, volume: VolumeDescription) -> bool {
        let redundant = volume.layout.redundancy_units() > 0;
        if !redundant {
            self.drop(volume.id);
            return true;
        }
        let room = self.0.len() < limits::OBJECTS_MAX || self.0.contains_key(&volume.id);
        if room {
            self.0.insert(volume.id, volume);
        }
        room
    }

    /// Forgets a volume.
    pub fn drop(&mut self, volume: VolumeId) {
        self.0.remove(&volume);
    }

    /// True if `device` has units of redundant volumes, and all devices that share a stripe with it are `present`.
    pub fn can_do_without(&self, device: DeviceId, present: impl Fn(DeviceId) -> bool) -> bool {
        let mut found = false;
        for volume in self.0.values() {
            let Some(position) = volume.devices.iter().position(|other| *other == device) else { continue };
            found = true;
            let needed = |(other, device): (usize, &DeviceId)| {
                other == position || !share_a_stripe(&volume.layout, position, other) || present(*device)
            };
            if !volume.devices.iter().enumerate().all(needed) {
                return false;
            }
        }
        found
    }
}

/// True if some stripe may have units on both positions of the ring. A stripe lies on neighbours, and stripes begin at the multiples of
/// what the ring's length and theirs have in common.
fn share_a_stripe(layout: &Layout, one: usize, other: usize) -> bool {
    let (ring, width) = (layout.devices(), layout.scheme().width());
    let step = greatest_common_divisor(ring, width);
    // The last stripe that begins at or before `from` reaches as far as any that has a unit there.
    let reaches = |from: usize, to: usize| from % step + (to + ring - from) % ring < width;
    reaches(one, other) || reaches(other, one)
}

fn greatest_common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_layout::{Atomicity, Scheme};
    use braid_wire::Ordering;
    use std::collections::BTreeSet;

    fn volume(id: u64, scheme: Scheme, devices: &[u16]) -> VolumeDescription {
        VolumeDescription {
            id: VolumeId(id),
            bytes: 1 << 20,
            layout: Layout::new(scheme, devices.len(), 16).expect("it can be laid so"),
            devices: devices.iter().copied().map(DeviceId).collect(),
            ordering: Ordering::Timestamp,
            atomicity: Atomicity::Implied,
        }
    }

    /// As the units lie, one stripe after the other.
    #[test]
    fn devices_share_a_stripe_if_units_of_one_lie_on_them() {
        for width in 2..8 {
            for ring in width..14 {
                let layout = Layout::new(Scheme::Raid1 { copies: width }, ring, 1).expect("it can be laid so");
                let mut shared = BTreeSet::new();
                for stripe in 0..ring as u64 {
                    let redundancy = (0..width - 1).map(|unit| layout.redundancy_unit(stripe, unit).position);
                    let positions: Vec<_> = redundancy.chain([layout.data_unit(stripe, 0).position]).collect();
                    shared.extend(positions.iter().flat_map(|one| positions.iter().map(move |other| (*one, *other))));
                }
                for (one, other) in (0..ring).flat_map(|one| (0..ring).map(move |other| (one, other))) {
                    let expected = shared.contains(&(one, other));
                    assert_eq!(share_a_stripe(&layout, one, other), expected, "{width} of {ring}: {one}, {other}");
                }
            }
        }
    }

    #[test]
    fn a_device_can_be_missed_if_all_volumes_of_it_can_do_without() {
        let mut stripes = Stripes::default();
        let all = |_| true;
        let but = |gone: u16| move |device| device != DeviceId(gone);
        stripes.adopt(volume(1, Scheme::Raid0 { data: 3 }, &[0, 1, 2]));
        assert!(!stripes.can_do_without(DeviceId(0), all), "nothing is gained");
        // Two groups of three.
        stripes.adopt(volume(2, Scheme::Raid5 { data: 2 }, &[0, 1, 2, 3, 4, 5]));
        assert!(stripes.can_do_without(DeviceId(0), all));
        assert!(stripes.can_do_without(DeviceId(0), but(3)) && !stripes.can_do_without(DeviceId(0), but(2)));
        assert!(stripes.can_do_without(DeviceId(0), but(0)), "it is not there itself");
        stripes.adopt(volume(3, Scheme::Raid1 { copies: 2 }, &[3, 0]));
        assert!(!stripes.can_do_without(DeviceId(0), but(3)) && stripes.can_do_without(DeviceId(1), but(3)));
        assert!(!stripes.can_do_without(DeviceId(6), all), "it has nothing");
        stripes.drop(VolumeId(3));
        assert!(stripes.can_do_without(DeviceId(0), but(3)));
        stripes.adopt(volume(2, Scheme::Raid0 { data: 6 }, &[0, 1, 2, 3, 4, 5]));
        assert!(!stripes.can_do_without(DeviceId(0), all), "its description is a new one");
    }
}
