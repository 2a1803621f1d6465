//! The RAIDmap of a write to a volume, for people: what each device does with which block (the parallel-RAID paper, section 3.5 and
//! Figure 7).
//!
//! It is made from the plans that hosts execute: [`WritePlan`], and [`RaidMap`] if the devices compute the parity. A row is a band: rows of
//! a stripe in which the write updates the same units. Nothing is sent to a device.

use crate::array::Array;
use crate::failure::Failure;
use crate::volumes::{self, computed_at_host};
use braid_base::limits::TRANSACTION_BYTES_MAX;
use braid_base::units::format_size;
use braid_base::{BLOCK_BYTES, BlockRange, DeviceId};
use braid_blocks::{Base, Sent};
use braid_control::ReportedState;
use braid_layout::{Method, New, ParitySite, PlannedBand, RaidMap, SitePolicy, VolumeDescription, WritePlan};
use std::collections::BTreeSet;

/// Stripes that are mapped at most.
pub const STRIPES_MAX: u64 = 64;

/// Where parity is to be computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapSite {
    /// As hosts do with this setting of the volume.
    Policy(SitePolicy),
    /// At the device that holds the parity, from content. No volume has this setting; it is for comparison.
    ParityNode,
}

impl MapSite {
    /// The name in commands.
    pub fn name(self) -> &'static str {
        match self {
            MapSite::Policy(policy) => policy.name(),
            MapSite::ParityNode => "parity-node",
        }
    }
}

/// What each device does in a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteMap {
    pub site: MapSite,
    /// Where the parity is computed that needs old content.
    pub computed_at: ParitySite,
    /// Why that is the host although the site is another one; none if it is not so.
    pub reason: Option<String>,
    /// The devices of the volume, in the order of its ring.
    pub devices: Vec<MapDevice>,
    /// Devices with an expired lease that have a part in the write. It fails until they are back.
    pub awaited: Vec<DeviceId>,
    pub bands: Vec<MapBand>,
}

/// A device of the volume, and its membership state; none if no monitor runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapDevice {
    pub id: DeviceId,
    pub member_state: Option<ReportedState>,
}

/// A band of a stripe: a row of the map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapBand {
    pub stripe: u64,
    pub rows: BlockRange,
    pub method: Method,
    /// What each device does, in the order of the ring.
    pub cells: Vec<Cell>,
}

/// What a device does with its blocks of a band.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// What the blocks hold; none if the stripe has no unit on this device.
    pub role: Option<Role>,
    /// The blocks of the volume, if they hold data.
    pub volume_blocks: Option<BlockRange>,
    /// The blocks of the volume's object on the device.
    pub device_blocks: Option<BlockRange>,
    /// True if the write updates this data, on a device that is out: it goes into the parity alone.
    pub is_lost: bool,
    pub reads: Vec<BlockRange>,
    /// What is sent of these blocks, and where to.
    pub sends: Option<(Sent, Receiver)>,
    /// The parity that the device computes.
    pub computes: Option<Computed>,
    pub writes: bool,
}

/// What the blocks of a cell hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Data,
    Parity,
    Copy,
}

braid_base::names!(Role { Data => "data", Parity => "parity", Copy => "copy" });

/// Who is sent something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receiver {
    /// The host that writes (the originator).
    Host,
    Device(DeviceId),
}

/// How a device computes parity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Computed {
    pub base: Base,
    /// The devices from which it awaits something.
    pub from: Vec<DeviceId>,
    /// True if the host sends it content to add.
    pub adds_from_host: bool,
}

/// Bytes of content that a write transfers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transfers {
    /// From the host to devices.
    pub from_host: u64,
    /// From devices to the host.
    pub to_host: u64,
    pub between_devices: u64,
}

impl Cell {
    /// The states of the paper's Table V that the blocks go through.
    pub fn states(&self) -> Vec<u8> {
        let has = [
            !self.reads.is_empty(),
            matches!(self.sends, Some((Sent::Change, _))),
            self.sends.is_some(),
            self.computes.as_ref().is_some_and(|computed| !computed.from.is_empty()),
            self.computes.is_some(),
            self.writes,
        ];
        (1..).zip(has).filter_map(|(state, has)| has.then_some(state)).collect()
    }

    /// True if the device has nothing to do with these blocks.
    pub fn is_unused(&self) -> bool {
        self.states().is_empty() && !self.is_lost
    }
}

impl WriteMap {
    /// The map of a write of `length` bytes at `offset`, which are within the volume. The error is `volume-unavailable` if too many
    /// devices are out.
    pub fn new(
        volume: &VolumeDescription,
        devices: Vec<MapDevice>,
        site: MapSite,
        offset: u64,
        length: u64,
    ) -> Result<WriteMap, Failure> {
        let in_state = |state: ReportedState| {
            let such = devices.iter().filter(move |device| device.member_state == Some(state));
            such.map(|device| device.id).collect::<BTreeSet<DeviceId>>()
        };
        let returning =
            if volume.layout.redundancy_units() > 0 { in_state(ReportedState::Returning) } else { BTreeSet::new() };
        let absence = volume.absence(&in_state(ReportedState::Out), &returning);
        let plan = WritePlan::new(&volume.layout, &absence, offset, length).map_err(|unavailable| {
            let devices = unavailable.positions.iter().map(|position| volume.device_at(*position).0.to_string());
            let devices = devices.collect::<Vec<_>>().join(" and ");
            let message =
                format!("this range can't be written: too many devices of a stripe are out or returning ({devices})");
            Failure::unreachable("volume-unavailable", message)
                .hint("bring a device back: `braid status` shows what each one waits for")
        })?;
        let reads_nothing = plan.methods().small + plan.methods().large == 0;
        let wanted = match site {
            MapSite::Policy(policy) => policy.site_of(&plan),
            MapSite::ParityNode => (!reads_nothing).then_some(ParitySite::ParityNode),
        };
        let why_not = computed_at_host(volume);
        let map = wanted.filter(|_| why_not.is_none());
        // Holes would be left out of what the host adds to parity.
        let new = New::Data(vec![0; length as usize].into());
        let map = map.and_then(|at| Some((at, RaidMap::new(&plan, &new, at, |position| volume.device_at(position))?)));
        let reason = match (&map, site) {
            (Some(_), _) | (None, MapSite::Policy(SitePolicy::Originator)) => None,
            _ if why_not.is_some() => why_not.map(str::to_string),
            _ if reads_nothing => Some("nothing must be read for this write".to_string()),
            _ if wanted.is_some() => Some("a part of a block is written".to_string()),
            _ => Some("a band of the large method has more than 4 rows".to_string()),
        };
        let (computed_at, columns) = map.map_or((ParitySite::Originator, None), |(at, map)| (at, Some(map)));
        let builder = Builder { volume, plan: &plan, columns: columns.as_ref(), out: in_state(ReportedState::Out) };
        let bands: Vec<MapBand> = plan.bands().map(|band| builder.band(&band)).collect();
        let unavailable = in_state(ReportedState::Unavailable);
        let touched = plan.shares().iter().map(|share| volume.device_at(share.position));
        let awaited = touched.filter(|device| unavailable.contains(device)).collect();
        Ok(WriteMap { site, computed_at, reason, devices, awaited, bands })
    }

    pub fn transfers(&self) -> Transfers {
        let mut sum = Transfers::default();
        for (band, cell) in self.bands.iter().flat_map(|band| band.cells.iter().map(move |cell| (band, cell))) {
            let rows = band.rows.count * BLOCK_BYTES as u64;
            match cell.sends {
                Some((_, Receiver::Device(_))) => sum.between_devices += rows,
                Some((_, Receiver::Host)) => {
                    sum.to_host += cell.reads.iter().map(|range| range.count * BLOCK_BYTES as u64).sum::<u64>()
                }
                None => {}
            }
            if cell.writes && cell.computes.is_none() {
                sum.from_host += rows;
            }
            if cell.computes.as_ref().is_some_and(|computed| computed.adds_from_host) {
                // The host adds up what it adds.
                sum.from_host += rows;
            }
        }
        sum
    }
}

struct Builder<'a> {
    volume: &'a VolumeDescription,
    plan: &'a WritePlan,
    /// What the devices execute together, if they do.
    columns: Option<&'a RaidMap>,
    out: BTreeSet<DeviceId>,
}

impl Builder<'_> {
    fn band(&self, band: &PlannedBand) -> MapBand {
        let layout = &self.volume.layout;
        let mut cells = vec![Cell::default(); self.volume.devices.len()];
        for unit in 0..layout.data_units() {
            let first = band.stripe * layout.stripe_blocks() + unit as u64 * layout.unit_blocks() + band.rows.start;
            let place = layout.data_unit(band.stripe, unit);
            let cell = &mut cells[place.position];
            *cell = self.cell(place.position, BlockRange::new(place.block + band.rows.start, band.rows.count));
            cell.role = Some(Role::Data);
            cell.volume_blocks = Some(BlockRange::new(first, band.rows.count));
            cell.is_lost = band.units.contains(&unit) && self.out.contains(&self.volume.devices[place.position]);
        }
        for unit in 0..layout.redundancy_units() {
            let place = layout.redundancy_unit(band.stripe, unit);
            let cell = &mut cells[place.position];
            *cell = self.cell(place.position, BlockRange::new(place.block + band.rows.start, band.rows.count));
            cell.role = Some(if layout.data_units() == 1 { Role::Copy } else { Role::Parity });
        }
        MapBand { stripe: band.stripe, rows: band.rows, method: band.method, cells }
    }

    /// What the device at a position does with these of its blocks.
    fn cell(&self, position: usize, blocks: BlockRange) -> Cell {
        let share = self.plan.shares().iter().find(|share| share.position == position);
        let within = |ranges: &[BlockRange]| -> Vec<BlockRange> {
            ranges.iter().map(|range| range.intersection(blocks)).filter(|range| !range.is_empty()).collect()
        };
        let reads = share.map_or(Vec::new(), |share| within(&share.reads));
        let writes = share.is_some_and(|share| !within(&share.prewrites).is_empty());
        let column = self.columns.and_then(|map| map.columns.get(&position));
        let sent = column.and_then(|column| column.sends.iter().find(|sending| sending.blocks.overlaps(blocks)));
        let to_host = self.columns.is_none() && !reads.is_empty();
        let sends = match sent {
            Some(sending) => Some((sending.what, Receiver::Device(sending.to))),
            None => to_host.then_some((Sent::Old, Receiver::Host)),
        };
        let rows = column.and_then(|column| column.parity.iter().find(|rows| rows.blocks.overlaps(blocks)));
        let computes = rows.map(|rows| {
            let mut from = rows.from.clone();
            from.sort_unstable();
            Computed { base: rows.base, from, adds_from_host: !rows.own.is_empty() }
        });
        Cell { device_blocks: Some(blocks), reads, sends, computes, writes, ..Cell::default() }
    }
}

impl Array {
    /// What each device does in a write of `length` bytes at `offset`, with the volume's parity site or another one. Errors:
    /// `no-such-volume`, `bad-offset`, `bad-length`, `too-large`, `is-an-attribute-volume`, `volume-moving`, `volume-unavailable`.
    pub async fn map_write(
        &self,
        name: &str,
        offset: u64,
        length: u64,
        site: Option<MapSite>,
    ) -> Result<WriteMap, Failure> {
        let description = self.control().describe().await?;
        let entry = volumes::find(&description, name)?;
        let volume = volumes::describe(entry)?;
        if entry.attribute_volume {
            let message = format!("{name} is an attribute volume: it has no blocks that could be written");
            return Err(Failure::usage("is-an-attribute-volume", message));
        }
        if volume.moving.is_some() {
            return Err(volumes::moving(name, ": its writes go to two locations, which a map can't show"));
        }
        check_range(name, &volume, offset, length)?;
        let known = self.devices().await?.devices;
        let device = |id: &DeviceId| {
            let report = known.iter().find(|device| device.entry.id == id.0).and_then(|device| device.report.as_ref());
            MapDevice { id: *id, member_state: report.map(|report| report.member_state) }
        };
        let devices = volume.devices.iter().map(device).collect();
        WriteMap::new(&volume, devices, site.unwrap_or(MapSite::Policy(volume.parity_site)), offset, length)
    }
}

/// Refuses ranges that are no write, or for which the map would be too long.
fn check_range(name: &str, volume: &VolumeDescription, offset: u64, length: u64) -> Result<(), Failure> {
    if length == 0 {
        return Err(
            Failure::usage("bad-length", "a write has at least one byte, not 0").hint("give a length such as 4KiB")
        );
    }
    if offset.checked_add(length).is_none_or(|end| end > volume.bytes) {
        let message = format!(
            "{length} bytes at offset {offset} are beyond the end of volume '{name}', which has {} bytes",
            volume.bytes
        );
        return Err(Failure::usage("bad-offset", message)
            .hint(format!("offset and length together are at most {}", volume.bytes)));
    }
    if length > TRANSACTION_BYTES_MAX as u64 {
        let most = format_size(TRANSACTION_BYTES_MAX as u64);
        let message =
            format!("{} are more than one write: hosts split requests of more than {most}", format_size(length));
        return Err(Failure::usage("too-large", message).hint(format!("map at most {most} at a time")));
    }
    let stripe = volume.layout.stripe_blocks() * BLOCK_BYTES as u64;
    let stripes = (offset + length).div_ceil(stripe) - offset / stripe;
    if stripes > STRIPES_MAX {
        let message = format!("this write touches {stripes} stripes, and a map has at most {STRIPES_MAX}");
        return Err(Failure::usage("too-large", message).hint(format!(
            "a stripe of '{name}' has {}: map at most {} at a time",
            format_size(stripe),
            format_size(stripe * (STRIPES_MAX - 1))
        )));
    }
    Ok(())
}
