//! The settings of a measurement: all settings of one side, and the settings in which the other side differs.

use crate::prelude::*;
use braid_admin::array_creation;
use braid_base::limits::TRANSACTION_BYTES_MAX;
use braid_base::units::format_size;
use braid_ordering::Atomicity;
use std::str::FromStr;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub array: ArraySettings,
    pub volume: VolumeSettings,
    pub load: LoadSettings,
}

/// Settings whose change requires another array.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArraySettings {
    /// The program that runs the array; none for this program.
    pub binary: Option<PathBuf>,
    pub devices: u16,
    /// The number of nodes among which the devices are divided; 0 for a process for each device.
    pub nodes: u16,
}

/// Settings whose change requires another volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeSettings {
    pub layout: RaidLevel,
    /// Bytes in a stripe unit.
    pub unit: u64,
    pub ordering: Ordering,
    pub atomicity: Atomicity,
    pub parity_site: SitePolicy,
    /// The usable size in bytes.
    pub bytes: u64,
}

impl VolumeSettings {
    /// A volume with ordering by timestamps, whose hosts compute the parity.
    pub fn new(layout: RaidLevel, unit: u64, bytes: u64) -> VolumeSettings {
        let (ordering, atomicity, parity_site) = (Ordering::Timestamp, Atomicity::Implied, SitePolicy::Originator);
        VolumeSettings { layout, unit, ordering, atomicity, parity_site, bytes }
    }
}

/// Settings that can change from run to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadSettings {
    /// How requests reach the array.
    pub through: Through,
    /// The percentage of operations that are reads; the others are writes.
    pub reads: u8,
    /// Bytes of the shortest operation; offsets are multiples of it.
    pub block: u64,
    /// Bytes of the longest operation.
    pub block_max: u64,
    /// The sequence of offsets.
    pub pattern: Pattern,
    /// Operations in flight per client.
    pub depth: u16,
    /// The number of clients, each with its own host or connection.
    pub clients: u16,
}

impl LoadSettings {
    /// Random writes of one client, one after the other, all of this length.
    pub fn new(through: Through, block: u64) -> LoadSettings {
        LoadSettings { through, reads: 0, block, block_max: block, pattern: Pattern::Random, depth: 1, clients: 1 }
    }

    /// The lengths of operations, for readers.
    pub fn lengths(&self) -> String {
        match self.block == self.block_max {
            true => format_size(self.block),
            false => format!("{} to {}", format_size(self.block), format_size(self.block_max)),
        }
    }
}

/// How requests reach the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Through {
    /// Each client has a host of its own within the bench.
    Direct,
    /// Each client has a connection to the array's NBD server.
    Nbd,
    /// Each client has a connection to an NBD server of its own, which is a host in a separate process.
    Hosts,
}

/// The sequence of offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Pattern {
    /// Uniformly distributed.
    Random,
    /// Ascending; each client starts at its own part of the volume.
    Sequential,
}

/// The name of a value on the command line.
pub fn name_of(value: impl clap::ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_string()).unwrap_or_default()
}

/// A difference of the other side: `SETTING=VALUE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    setting: String,
    value: String,
}

/// The largest volume: the bench keeps some 24 bytes in memory for each block.
const SIZE_MAX: u64 = 256 << 30;
const CLIENTS_MAX: u16 = 64;
const DEPTH_MAX: u16 = 1024;

/// The settings that a change may name, for messages.
const CHANGEABLE: &str = "through, ordering, atomicity, parity-site, layout, unit, size, processes, nodes, devices, binary, reads, block, \
                          block-max, pattern, depth or clients";

impl Settings {
    /// Fails if the settings can't be measured.
    pub fn check(&self) -> Result<(), Failure> {
        let Settings { array, volume, load } = self;
        array_creation::check_multiple("the size", volume.bytes)?;
        array_creation::layout(volume.layout, array.devices.into(), volume.unit)?;
        array_creation::check_multiple("--block", load.block)?;
        array_creation::check_multiple("--block-max", load.block_max)?;
        let wrong = |message: String| Err(Failure::usage("bad-setting", message));
        if volume.bytes > SIZE_MAX {
            return wrong(format!("the bench can check volumes of at most {}", format_size(SIZE_MAX)));
        }
        if load.reads > 100 {
            return wrong(format!("{} is not a percentage of reads: choose 0 to 100", load.reads));
        }
        let most = (TRANSACTION_BYTES_MAX as u64).min(volume.bytes);
        if load.block > load.block_max || load.block_max > most {
            let (block, block_max, most) = (format_size(load.block), format_size(load.block_max), format_size(most));
            return wrong(format!(
                "operations of {block} to {block_max} are invalid: the longest may have at most {most}, and must not be shorter than the shortest"
            ));
        }
        if !(1..=DEPTH_MAX).contains(&load.depth) || !(1..=CLIENTS_MAX).contains(&load.clients) {
            return wrong(format!("choose a depth of 1 to {DEPTH_MAX}, and 1 to {CLIENTS_MAX} clients"));
        }
        if array.binary.is_some() && load.through == Through::Direct {
            let message = "hosts of another build can't be used directly, only through its NBD server";
            return Err(Failure::usage("bad-setting", message).hint("use --through nbd"));
        }
        Ok(())
    }

    /// The settings for programs.
    pub fn to_json(&self) -> serde_json::Value {
        let Settings { array, volume, load } = self;
        json!({
            "binary": array.binary,
            "devices": array.devices,
            "in_process": array.nodes == 1,
            "nodes": array.nodes,
            "layout": volume.layout.to_string(),
            "unit": volume.unit,
            "ordering": volume.ordering.name(),
            "atomicity": volume.atomicity.name(),
            "parity_site": volume.parity_site.name(),
            "size": volume.bytes,
            "through": name_of(load.through),
            "reads": load.reads,
            "block": load.block,
            "block_max": load.block_max,
            "pattern": name_of(load.pattern),
            "depth": load.depth,
            "clients": load.clients,
        })
    }
}

impl std::fmt::Display for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Settings { array, volume, load } = self;
        let place = match array.nodes {
            0 => "processes".to_string(),
            1 => "one node".to_string(),
            nodes => format!("{nodes} nodes"),
        };
        let VolumeSettings { layout, unit, ordering, atomicity, parity_site, bytes } = volume;
        let (bytes, unit) = (format_size(*bytes), format_size(*unit));
        write!(f, "{} devices in {place}; volume of {bytes}: {layout}, stripe unit {unit}, ", array.devices)?;
        writeln!(f, "ordering {ordering}, atomicity {atomicity}, parity site {parity_site}")?;
        let sizes = load.lengths();
        let mix = match load.reads {
            0 => "writes".to_string(),
            100 => "reads".to_string(),
            reads => format!("{reads} % reads, {} % writes", 100 - reads),
        };
        let (pattern, depth, clients) = (name_of(load.pattern), load.depth, load.clients);
        let each = if clients == 1 { "1 client".to_string() } else { format!("each of {clients} clients") };
        write!(f, "{mix} of {sizes}, {pattern}, {depth} in flight of {each}")
    }
}

impl Change {
    pub fn setting(&self) -> &str {
        &self.setting
    }

    pub fn apply(&self, settings: &mut Settings) -> Result<(), String> {
        let Settings { array, volume, load } = settings;
        let value = self.value.as_str();
        match self.setting.as_str() {
            "through" => load.through = choice(value)?,
            "pattern" => load.pattern = choice(value)?,
            "reads" => load.reads = number(value)?,
            "depth" => load.depth = number(value)?,
            "clients" => load.clients = number(value)?,
            "block" => {
                // A single length, as on the command line.
                let fixed = load.block == load.block_max;
                load.block = size(value)?;
                load.block_max = if fixed { load.block } else { load.block_max };
            }
            "block-max" => load.block_max = size(value)?,
            "ordering" => volume.ordering = parsed(value)?,
            "atomicity" => volume.atomicity = parsed(value)?,
            "parity-site" => volume.parity_site = parsed(value)?,
            "layout" => volume.layout = parsed(value)?,
            "unit" => volume.unit = size(value)?,
            "size" => volume.bytes = size(value)?,
            "devices" => array.devices = number(value)?,
            "in-process" if value.is_empty() => array.nodes = 1,
            "processes" if value.is_empty() => array.nodes = 0,
            "nodes" => array.nodes = number(value)?,
            "in-process" | "processes" => return Err(format!("{} takes no value", self.setting)),
            "binary" if value.is_empty() => return Err("binary needs the path of a program".to_string()),
            "binary" => array.binary = Some(value.into()),
            other => return Err(format!("'{other}' is not a setting that --versus can change: choose {CHANGEABLE}")),
        }
        Ok(())
    }
}

impl FromStr for Change {
    type Err = String;

    fn from_str(text: &str) -> Result<Change, String> {
        let (setting, value) = text.split_once('=').unwrap_or((text, ""));
        let change = Change { setting: setting.to_string(), value: value.to_string() };
        // Whether a value is valid does not depend on the settings that are changed.
        change.apply(&mut Settings {
            array: ArraySettings::default(),
            volume: VolumeSettings::new(RaidLevel::Raid0 { data: 1 }, 0, 0),
            load: LoadSettings::new(Through::Direct, BLOCK_BYTES as u64),
        })?;
        Ok(change)
    }
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.setting)?;
        if self.value.is_empty() { Ok(()) } else { write!(f, "={}", self.value) }
    }
}

fn choice<T: clap::ValueEnum>(text: &str) -> Result<T, String> {
    T::from_str(text, false).map_err(|_| {
        let values = T::value_variants().iter().filter_map(T::to_possible_value);
        let names: Vec<String> = values.map(|value| value.get_name().to_string()).collect();
        format!("'{text}' is none of {}", names.join(", "))
    })
}

fn parsed<T: FromStr<Err: ToString>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("'{text}' is not a number that fits"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings {
            array: ArraySettings { binary: None, devices: 5, ..ArraySettings::default() },
            volume: VolumeSettings::new(RaidLevel::Raid5 { data: 4 }, 64 << 10, 1 << 30),
            load: LoadSettings { reads: 100, depth: 32, ..LoadSettings::new(Through::Nbd, 4096) },
        }
    }

    fn changed(change: &str) -> Settings {
        let mut settings = settings();
        change.parse::<Change>().unwrap().apply(&mut settings).unwrap();
        settings
    }

    #[test]
    fn every_setting_that_may_differ_does_when_it_is_changed() {
        let changes = "through=direct pattern=sequential reads=0 depth=1 clients=2 block=8KiB block-max=16KiB \
                       ordering=none atomicity=consistent layout=raid1:2 unit=16KiB size=1MiB devices=7 in-process \
                       nodes=2 binary=/x/braid";
        for change in changes.split_whitespace() {
            assert_ne!(changed(change), settings(), "{change}");
            assert_eq!(change.parse::<Change>().unwrap().to_string(), change);
            let name = change.split('=').next().unwrap();
            assert!(CHANGEABLE.contains(name) || name == "in-process", "the list for messages contains {name}");
        }
        assert_eq!(changed("processes"), settings(), "the default");
        assert_eq!(changed("ordering=timestamp"), settings(), "equal sides show the size of random differences");
    }

    #[test]
    fn a_length_alone_is_the_length_of_every_operation() {
        assert_eq!(changed("block=64KiB").load.block_max, 64 << 10);
        let mut ranged = changed("block-max=1MiB");
        "block=64KiB".parse::<Change>().unwrap().apply(&mut ranged).unwrap();
        assert_eq!((ranged.load.block, ranged.load.block_max), (64 << 10, 1 << 20));
    }

    #[test]
    fn an_unknown_setting_is_refused_with_the_known_ones() {
        for (text, word) in [
            ("speed=11", "ordering"),
            ("", "ordering"),
            ("ordering=random", "timestamp"),
            ("atomicity=some", "implied"),
            ("through=wire", "nbd"),
            ("depth=many", "many"),
            ("unit=big", "KiB"),
            ("layout=raid9", "raid9"),
            ("in-process=yes", "no value"),
            ("binary=", "path"),
        ] {
            let error = text.parse::<Change>().unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
    }

    #[test]
    fn settings_that_can_not_be_measured_are_refused() {
        assert_eq!(settings().check(), Ok(()));
        for (change, code) in [
            ("reads=101", "bad-setting"),
            ("block=5000", "bad-size"),
            ("block=8MiB", "bad-setting"),
            ("block-max=2KiB", "bad-size"),
            ("size=0", "bad-size"),
            ("size=1TiB", "bad-setting"),
            ("unit=5000", "bad-unit"),
            ("layout=raid5:5+1", "bad-layout"),
            ("depth=0", "bad-setting"),
            ("clients=65", "bad-setting"),
        ] {
            assert_eq!(changed(change).check().unwrap_err().code, code, "{change}");
        }
        let mut other = changed("binary=/x/braid");
        assert_eq!(other.check(), Ok(()));
        other.load.through = Through::Direct;
        assert_eq!(other.check().unwrap_err().code, "bad-setting");
    }
}
