//! Creating an array: the defaults, its folder and its devices' files. Also compares later arguments with those of the creation.

use crate::array::Array;
use crate::cluster;
use crate::device_file;
use crate::failure::Failure;
use braid_base::limits::{LOCK_SERVERS_MAX, Settings};
use braid_base::units::format_size;
use braid_base::{Acquisition, Callbacks, DeviceId, RangeDivision};
use braid_control::{
    ArrayDescription, ControlError, ControlPlane, Creation, DeviceEntry, LEASE_MILLIS_MAX, LEASE_MILLIS_MIN,
    LocalFolder, monitor_file, new_array_id, shell_word,
};
use braid_layout::{Layout, RaidLevel};
use braid_store::{SIZE_MIN, StoreConfig};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// The parameters of a new array; none for the default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreateOptions {
    pub devices: Option<u16>,
    /// The size of each device in bytes.
    pub size: Option<u64>,
    pub layout: Option<RaidLevel>,
    /// Bytes in a stripe unit.
    pub unit: Option<u64>,
    /// Name and usable size of each volume.
    pub volumes: Vec<(String, u64)>,
    /// The name of a file system, which gets the space that volumes leave. Without volumes, half of the space is left to it.
    pub file_system: Option<String>,
    pub lock_servers: Option<u16>,
    /// How hosts acquire locks from several lock servers.
    pub lock_acquisition: Option<Acquisition>,
    /// How the lock servers divide the ranges of a space.
    pub range_division: Option<RangeDivision>,
    /// Which hosts a lock server calls on to give back ranges.
    pub callbacks: Option<Callbacks>,
    /// The lease: a node that is silent for longer is presumed dead.
    pub lease: Option<Duration>,
}

/// The name of the volume that fills an array for which no volumes were requested.
pub const DEFAULT_VOLUME: &str = "vol0";
pub(crate) const DEFAULT_DEVICES: u16 = 5;
/// The default raw size of a device: files are sparse, so it costs nothing until it is written.
pub(crate) const DEFAULT_SIZE: u64 = 8 << 30;

/// The longest name: those of the volumes of a file system have five characters more, or six.
const NAME_CHARACTERS_MAX: usize = 59;

impl CreateOptions {
    /// Completes the parameters with defaults. Fails if no array can be created with them.
    pub fn creation(&self) -> Result<Creation, Failure> {
        let devices = self.devices.unwrap_or(DEFAULT_DEVICES);
        if devices == 0 || usize::from(devices) > braid_base::limits::DEVICES_MAX {
            let most = braid_base::limits::DEVICES_MAX;
            return Err(Failure::usage("bad-devices", format!("an array has 1 to {most} devices, not {devices}")));
        }
        let size = self.size.unwrap_or(DEFAULT_SIZE);
        check_device_size("--size", size)?;
        let scheme = self.layout.unwrap_or_else(|| default_scheme(devices));
        let unit = self.unit.unwrap_or(Layout::UNIT_BLOCKS_DEFAULT * braid_base::BLOCK_BYTES as u64);
        layout(scheme, devices.into(), unit)?;
        for (index, (name, bytes)) in self.volumes.iter().enumerate() {
            check_name(name)?;
            check_multiple(&format!("volume {name}"), *bytes)?;
            if self.volumes[..index].iter().any(|(other, _)| other == name) {
                return Err(Failure::usage("volume-exists", format!("--volume {name} is given twice")));
            }
        }
        self.file_system.as_deref().map_or(Ok(()), check_file_system_name)?;
        let lock_servers = self.lock_servers.unwrap_or(1);
        if !(1..=LOCK_SERVERS_MAX).contains(&usize::from(lock_servers)) {
            let message = format!("an array has 1 to {LOCK_SERVERS_MAX} lock servers, not {lock_servers}");
            return Err(Failure::usage("bad-lock-servers", message));
        }
        let lease = self.lease.unwrap_or(Settings::default().device_lease);
        let lease_millis = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
        if !(LEASE_MILLIS_MIN..=LEASE_MILLIS_MAX).contains(&lease_millis) {
            let (least, most) = (LEASE_MILLIS_MIN / 1000, LEASE_MILLIS_MAX / 1000);
            let message = format!("a lease is {least}s to {most}s, not {}", in_seconds(lease));
            return Err(Failure::usage("bad-lease", message).hint("the default is 4s"));
        }
        Ok(Creation {
            devices,
            size,
            layout: scheme.to_string(),
            unit,
            volumes: self.volumes.clone(),
            file_system: self.file_system.clone(),
            lock_servers,
            lock_acquisition: self.lock_acquisition.unwrap_or_default(),
            range_division: self.range_division.unwrap_or_default(),
            callbacks: self.callbacks.unwrap_or_default(),
            lease_millis,
        })
    }

    /// The options of `braid up` for these parameters, except volumes: the value that is asked for, and that of the creation.
    pub(crate) fn options(&self, created: &Creation) -> [(&'static str, Option<String>, String); 10] {
        let text = |value: Option<u16>| value.map(|value| value.to_string());
        let (acquisition, division) = (created.lock_acquisition.name().to_string(), created.range_division.to_string());
        let file_system = created.file_system.clone().unwrap_or_else(|| "no file system".to_string());
        let lease = Duration::from_millis(created.lease_millis);
        [
            ("--devices", text(self.devices), created.devices.to_string()),
            ("--size", self.size.map(exact_size), exact_size(created.size)),
            ("--layout", self.layout.map(|layout| layout.to_string()), created.layout.clone()),
            ("--unit", self.unit.map(exact_size), exact_size(created.unit)),
            ("--fs", self.file_system.clone(), file_system),
            ("--lock-servers", text(self.lock_servers), created.lock_servers.to_string()),
            ("--lock-acquisition", self.lock_acquisition.map(|how| how.name().to_string()), acquisition),
            ("--range-division", self.range_division.map(|how| how.to_string()), division),
            ("--callbacks", self.callbacks.map(|which| which.to_string()), created.callbacks.to_string()),
            ("--lease", self.lease.map(in_seconds), in_seconds(lease)),
        ]
    }

    /// The arguments that differ from those of the creation, each in words.
    pub fn differences(&self, created: &Creation) -> Vec<String> {
        let differs = |(option, asked, created): (&str, Option<String>, String)| {
            let asked = asked.filter(|asked| *asked != created)?;
            Some(format!("{option} {asked}, but the array was created with {created}"))
        };
        let mut differences: Vec<String> = self.options(created).into_iter().filter_map(differs).collect();
        if self.volumes.is_empty() {
            return differences;
        }
        for (name, bytes) in &self.volumes {
            differences.extend(match created.volumes.iter().find(|(other, _)| other == name) {
                None => Some(format!("--volume {name}, but the array was created without it")),
                Some((_, size)) => {
                    differs((&format!("--volume {name} with"), Some(exact_size(*bytes)), exact_size(*size)))
                }
            });
        }
        for (name, _) in &created.volumes {
            if !self.volumes.iter().any(|(other, _)| other == name) {
                differences.push(format!("no --volume {name}, but the array was created with it"));
            }
        }
        differences
    }
}

impl Array {
    /// Creates an array: its folder and the files of its devices, as `asked`. Nothing is started: [`Array::up`] or `braid up --dir PATH` runs
    /// the array, and creates its first volumes. If the folder contains an array that differs from `asked`, the error is `arguments-differ`.
    pub async fn create(path: impl AsRef<Path>, asked: &CreateOptions) -> Result<Array, Failure> {
        asked.creation()?;
        let control = ControlPlane::at(path.as_ref());
        // Held until the array has been created, so that no other process creates or runs it meanwhile.
        let _supervision = control.local().supervise()?;
        open_or_create(&control, asked).await?;
        Ok(Array::of(control))
    }
}

/// The devices of a new array: sparse files in its folder.
pub fn device_entries(creation: &Creation) -> Vec<DeviceEntry> {
    (0..creation.devices).map(|id| DeviceEntry::new(id, creation.size)).collect()
}

/// Opens the array in `folder`, or creates it as `asked` if there is none.
pub async fn open_or_create(control: &ControlPlane, asked: &CreateOptions) -> Result<ArrayDescription, Failure> {
    let description = match control.describe().await {
        // If the creation failed, for want of space for example, it may be retried with other arguments: no data has been served.
        Ok(description) if !description.populated && !asked.differences(&description.creation).is_empty() => {
            let creation = asked.creation()?;
            let replace = |description: &mut ArrayDescription| {
                description.devices = device_entries(&creation);
                description.creation = creation.clone();
                description.created = false;
                description.volumes.clear();
                Ok::<_, Failure>(())
            };
            control.update(replace).await?;
            for entry in description.devices.iter().filter(|entry| entry.lies_in_folder()) {
                // The files of the new creation are made again in any case.
                let _ = std::fs::remove_file(entry.path(control.local().dir()));
            }
            control.describe().await?
        }
        Ok(description) => {
            refuse_differences(control, asked, &description)?;
            description
        }
        Err(ControlError::NoArray { .. }) => {
            let creation = asked.creation()?;
            let description = ArrayDescription::new(new_array_id(), device_entries(&creation), creation);
            refuse_left_overs(control.local(), &description)?;
            control.local().create(&description)?;
            description
        }
        Err(error) => return Err(error.into()),
    };
    if description.created {
        return Ok(description);
    }
    // The state left by an earlier attempt describes other devices.
    let _ = std::fs::remove_file(control.local().dir().join(monitor_file()));
    let mut disks = BTreeMap::new();
    for entry in &description.devices {
        let config = StoreConfig { array: description.array, device: DeviceId(entry.id), size: entry.size };
        disks.insert(entry.id, device_file::create(&entry.path(control.local().dir()), &config, true)?);
    }
    let complete = |description: &mut ArrayDescription| {
        for entry in &mut description.devices {
            entry.disk = disks.get(&entry.id).copied();
        }
        description.created = true;
        Ok::<_, Failure>(description.clone())
    };
    control.update(complete).await
}

fn refuse_differences(
    control: &ControlPlane,
    asked: &CreateOptions,
    description: &ArrayDescription,
) -> Result<(), Failure> {
    let mut asked = asked.clone();
    // It was created later.
    let is_there = |name: &String| description.file_systems.iter().any(|entry| entry.name == *name);
    asked.file_system = asked.file_system.filter(|name| !is_there(name));
    let differences = asked.differences(&description.creation);
    if differences.is_empty() {
        return Ok(());
    }
    Err(Failure::usage("arguments-differ", differences.join("; ")).hint(format!(
        "without these options, `braid up --dir {}` opens the array as it is; `braid device add`, `braid volume` and `braid fs create` change it; another --dir creates another array",
        shell_word(control.place())
    )))
}

/// Device files without a description may be the remains of an array: they are not overwritten.
fn refuse_left_overs(folder: &LocalFolder, description: &ArrayDescription) -> Result<(), Failure> {
    if folder.dir().join(cluster::MOVED).exists() {
        return Err(Failure::failed("left-overs", "the array was moved to several machines, or is about to be")
            .hint("run `braid agent` here; if there is no cluster.json, repeat `braid cluster adopt`"));
    }
    let paths = description.devices.iter().map(|entry| entry.path(folder.dir()));
    match paths.into_iter().find(|path| path.exists()) {
        None => Ok(()),
        Some(path) => {
            let message = format!("{} exists, but there is no array.json that describes its array", path.display());
            Err(Failure::failed("left-overs", message)
                .hint("recreate array.json from the copies in device files with `braid monitor recover --from FILE...`, or restore it; or remove the files if their content is not needed; or choose another --dir"))
        }
    }
}

/// The layout of `scheme` on this many devices, with units of `unit` bytes.
pub fn layout(scheme: RaidLevel, devices: usize, unit: u64) -> Result<Layout, Failure> {
    Ok(braid_description::layout(scheme, devices, unit)?)
}

/// Refuses a size that is not a multiple of the block size.
pub fn check_multiple(what: &str, bytes: u64) -> Result<(), Failure> {
    let block = braid_base::BLOCK_BYTES as u64;
    if bytes != 0 && bytes.is_multiple_of(block) {
        return Ok(());
    }
    let nearest = (bytes / block).max(1) * block;
    Err(Failure::usage("bad-size", format!("{what}: {bytes} bytes is zero or not a multiple of 4 KiB"))
        .hint(format!("use {nearest}, for example; sizes can be written as 64MiB or 8G")))
}

/// Refuses a raw size that a device can't have.
pub fn check_device_size(what: &str, bytes: u64) -> Result<(), Failure> {
    if bytes < SIZE_MIN {
        let (size, least) = (format_size(bytes), format_size(SIZE_MIN));
        let message = format!("{what}: {size} is too small: a device has at least {least}");
        let hint = format!("use {what} {}, for example; sizes can be written as 64MiB or 8G", least.replace(' ', ""));
        return Err(Failure::usage("device-too-small", message).hint(hint));
    }
    check_multiple(what, bytes)
}

/// Refuses names that can't be used in a URI.
pub fn check_name(name: &str) -> Result<(), Failure> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if !name.is_empty() && name.len() <= 64 && name.chars().all(fits) && !name.starts_with(['-', '.']) {
        return Ok(());
    }
    Err(Failure::usage("bad-name", format!("'{name}' is not a valid name of a volume"))
        .hint("use up to 64 letters, digits, '-', '_' and '.', beginning with a letter or digit"))
}

/// Refuses names that can't be used for volumes, with what is appended to them.
pub fn check_file_system_name(name: &str) -> Result<(), Failure> {
    if name.len() <= NAME_CHARACTERS_MAX && check_name(name).is_ok() {
        return Ok(());
    }
    let hint =
        format!("use up to {NAME_CHARACTERS_MAX} letters, digits, '-', '_' and '.', beginning with a letter or digit");
    Err(Failure::usage("bad-name", format!("'{name}' is not a valid name of a file system")).hint(hint))
}

fn default_scheme(devices: u16) -> RaidLevel {
    match devices {
        0 | 1 => RaidLevel::Raid0 { data: 1 },
        2 => RaidLevel::Raid1 { copies: 2 },
        // A stripe over all devices, up to the width beyond which a second failure becomes likely.
        n => RaidLevel::Raid5 { data: usize::from(n.min(9)) - 1 },
    }
}

/// Formats a lease: `4s`, `100ms`.
fn in_seconds(lease: Duration) -> String {
    match lease.subsec_nanos() {
        0 => format!("{}s", lease.as_secs()),
        _ => format!("{}ms", lease.as_millis()),
    }
}

/// Formats a size such that different sizes look different.
pub fn exact_size(bytes: u64) -> String {
    let short = format_size(bytes);
    if braid_base::units::parse_size(&short) == Ok(bytes) { short } else { format!("{bytes} B") }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// An array of so many devices, without volumes.
    pub(crate) fn description(devices: u16) -> ArrayDescription {
        let creation = CreateOptions { devices: Some(devices), ..CreateOptions::default() }.creation().unwrap();
        ArrayDescription::new(new_array_id(), device_entries(&creation), creation)
    }

    #[test]
    fn a_creation_without_options_has_five_devices_in_raid_5() {
        let creation = CreateOptions::default().creation().unwrap();
        assert_eq!((creation.devices, creation.layout.as_str(), creation.unit), (5, "raid5:4+1", 65_536));
        assert_eq!(CreateOptions::default().differences(&creation), [""; 0]);
    }

    #[test]
    fn every_number_of_devices_has_a_default_layout() {
        for devices in 1..=40 {
            let creation = CreateOptions { devices: Some(devices), ..CreateOptions::default() }.creation();
            assert!(creation.is_ok(), "{devices}: {creation:?}");
        }
    }

    #[test]
    fn each_difference_is_named() {
        let creation =
            CreateOptions { volumes: vec![("a".into(), 4096), ("b".into(), 8192)], ..CreateOptions::default() };
        let creation = creation.creation().unwrap();
        let asked = CreateOptions {
            devices: Some(7),
            size: Some((8 << 30) + 4096),
            layout: Some("raid1:2".parse().unwrap()),
            unit: Some(65_536),
            volumes: vec![("a".into(), 12_288), ("c".into(), 4096)],
            file_system: Some("home".into()),
            lock_servers: Some(2),
            lock_acquisition: Some(Acquisition::Timeout),
            range_division: Some(RangeDivision::Space),
            callbacks: Some(Callbacks::Group),
            lease: Some(Duration::from_secs(7)),
        };
        assert_eq!(
            asked.differences(&creation),
            [
                "--devices 7, but the array was created with 5",
                "--size 8589938688 B, but the array was created with 8 GiB",
                "--layout raid1:2, but the array was created with raid5:4+1",
                "--fs home, but the array was created with no file system",
                "--lock-servers 2, but the array was created with 1",
                "--lock-acquisition timeout, but the array was created with ordered",
                "--range-division space, but the array was created with round-robin:1MiB",
                "--callbacks group, but the array was created with holder",
                "--lease 7s, but the array was created with 4s",
                "--volume a with 12 KiB, but the array was created with 4 KiB",
                "--volume c, but the array was created without it",
                "no --volume b, but the array was created with it",
            ]
        );
    }

    #[test]
    fn impossible_creations_are_refused_with_the_reason() {
        let code = |asked: CreateOptions| asked.creation().unwrap_err().code;
        let few =
            CreateOptions { devices: Some(3), layout: Some("raid5:4+1".parse().unwrap()), ..CreateOptions::default() };
        assert_eq!(code(few), "bad-layout");
        assert_eq!(code(CreateOptions { size: Some((1 << 30) + 1), ..CreateOptions::default() }), "bad-size");
        assert_eq!(code(CreateOptions { size: Some(1 << 20), ..CreateOptions::default() }), "device-too-small");
        assert_eq!(code(CreateOptions { unit: Some(100_000), ..CreateOptions::default() }), "bad-unit");
        let outside = vec![("../x".to_string(), 4096)];
        assert_eq!(code(CreateOptions { volumes: outside, ..CreateOptions::default() }), "bad-name");
        assert_eq!(code(CreateOptions { volumes: vec![("x".into(), 4095)], ..CreateOptions::default() }), "bad-size");
        let twice = vec![("x".to_string(), 4096), ("x".to_string(), 8192)];
        assert_eq!(code(CreateOptions { volumes: twice, ..CreateOptions::default() }), "volume-exists");
        assert_eq!(code(CreateOptions { devices: Some(0), ..CreateOptions::default() }), "bad-devices");
        let lease = CreateOptions { lease: Some(Duration::from_millis(100)), ..CreateOptions::default() }
            .creation()
            .unwrap_err();
        assert_eq!((lease.code.as_str(), lease.message.as_str()), ("bad-lease", "a lease is 1s to 60s, not 100ms"));
        assert_eq!(code(CreateOptions { lock_servers: Some(0), ..CreateOptions::default() }), "bad-lock-servers");
    }

    #[test]
    fn names_leave_room_for_those_of_volumes() {
        assert!(check_file_system_name(&"a".repeat(59)).is_ok());
        for bad in ["", "-a", "a/b", &"a".repeat(60)] {
            assert_eq!(check_file_system_name(bad).unwrap_err().code, "bad-name", "{bad}");
        }
    }
}
