//! A volume beside the first one, as the seed draws it.

use crate::prelude::*;

/// A volume in addition to the first one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoreVolume {
    /// The layout on its ring.
    pub layout: Layout,
    /// The first device of its ring. The others follow in order; the array's first device follows its last.
    pub first: u16,
    pub ordering: Ordering,
    /// Length in stripes.
    pub stripes: u64,
}

impl MoreVolume {
    /// Draws a volume on some of `devices` devices.
    pub(crate) fn draw(rng: &mut Rng, devices: usize, redundant: bool) -> MoreVolume {
        let schemes = match redundant && devices > 1 {
            true => [RaidLevel::Raid1 { copies: 2 }, RaidLevel::Raid5 { data: 2 }, RaidLevel::Raid5 { data: 3 }],
            false => [RaidLevel::Raid0 { data: 1 }, RaidLevel::Raid0 { data: 2 }, RaidLevel::Raid0 { data: 3 }],
        };
        let fitting: Vec<RaidLevel> = schemes.into_iter().filter(|scheme| scheme.width() <= devices).collect();
        let scheme = fitting[rng.below(fitting.len() as u64) as usize];
        let width = rng.between(scheme.width() as u64, devices as u64) as usize;
        let unit = [1, 1, 2, 4][rng.below(4) as usize];
        let layout = Layout::new(scheme, width, unit).expect("a ring that is wide enough");
        let orderings = [
            Ordering::Timestamp,
            Ordering::Timestamp,
            Ordering::DeviceLock,
            Ordering::ServerLock,
            Ordering::CallbackLock,
            // Without an ordering, redundancy is not kept consistent among several users.
            if layout.redundancy_units() > 0 { Ordering::Timestamp } else { Ordering::None },
        ];
        let ordering = orderings[rng.below(orderings.len() as u64) as usize];
        MoreVolume { layout, first: rng.below(devices as u64) as u16, ordering, stripes: rng.between(1, 3) }
    }

    /// The same, in an array with so many lock servers.
    pub(crate) fn for_lock_servers(self, count: u16) -> MoreVolume {
        let may = count > 0 || !self.ordering.needs_lock_server();
        MoreVolume { ordering: if may { self.ordering } else { Ordering::Timestamp }, ..self }
    }

    /// The volume, on an array of so many devices.
    pub(crate) fn describe(&self, id: VolumeId, devices: usize) -> VolumeDescription {
        let MoreVolume { layout, first, ordering, stripes } = *self;
        VolumeDescription {
            ordering,
            ..VolumeDescription::new(
                id,
                stripes * layout.stripe_blocks() * BLOCK_BYTES as u64,
                layout,
                (0..layout.devices() as u16).map(|number| DeviceId((first + number) % devices as u16)).collect(),
            )
        }
    }
}
