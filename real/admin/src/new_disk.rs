//! Disks for devices and spares are prepared here: a file is created or taken over, with the marks of its array, but nothing in the
//! description names it yet. What has a past, belongs to an array, or is in use is refused ([`crate::disk_facts`]).

use crate::device_file::{self, DeviceFile, Expected, UNASSIGNED};
use crate::disk_facts::{ANSWER_WAIT, DiskFacts, DiskIdentity, answer_of, file_of_array, folder_of_array};
use crate::failure::Failure;
use braid_base::ArrayId;
use braid_base::units::format_size;
use braid_control::{ArrayDescription, DeviceEntry, DeviceState, DiskEntry, LocalFolder, shell_word};
use braid_store::{Geometry, StoreConfig};
use std::io::{Seek, SeekFrom};
use std::path::{Component, Path, PathBuf};

#[derive(Clone, Debug)]
pub struct NewDisk {
    /// Its file; none for a new file in the array's folder.
    pub path: Option<PathBuf>,
    /// The name of that new file, without number and extension.
    pub stem: String,
    /// Its raw size; none for the size of the existing file or disk, or else `default_size`.
    pub size: Option<u64>,
    /// The size if nothing else determines it.
    pub default_size: u64,
    /// True if an existing file or disk may be overwritten.
    pub overwrite: bool,
}

/// Creates a disk for any slot of the array. A disk that was created before and has never been served is used again.
pub fn prepare(folder: &LocalFolder, description: &ArrayDescription, wanted: &NewDisk) -> Result<DiskEntry, Failure> {
    let path = match &wanted.path {
        Some(path) => answer_of(path, ANSWER_WAIT, lasting)??,
        None => unused_file(&folder.absolute(), description, &wanted.stem),
    };
    if path.to_str().is_none() {
        return Err(
            Failure::usage("bad-path", format!("the path is not UTF-8: {}", shell_word(&path))).hint("rename it")
        );
    }
    if let Some(known) = known_at(folder, description, &path)? {
        return Ok(known);
    }
    let file = path.strip_prefix(folder.absolute()).map_or(path.clone(), Path::to_path_buf);
    if let Some(around) = folder_of_array(&path).filter(|_| wanted.overwrite || !path.is_file()) {
        let is_braid = || path.extension().is_some_and(|name| name == "braid");
        let is_disk = || is_braid() || DeviceFile::open_to_look(&path).is_ok();
        // Old disks of this array itself may be overwritten.
        if !(path.is_file() && around == folder.absolute() && is_disk()) {
            return Err(file_of_array(&path, &around));
        }
    }
    if path.exists() && !wanted.overwrite {
        let found = look_at(&path, description.array)?;
        let superblock = found.superblock();
        let (size, disk) = (superblock.geometry.size, superblock.disk);
        if let Some(asked) = wanted.size.filter(|asked| *asked != size) {
            let (size, asked) = (format_size(size), format_size(asked));
            let message = format!("{} was created with {size}, not with {asked}", path.display());
            return Err(Failure::usage("bad-size", message).hint("use --overwrite to create it again"));
        }
        return Ok(DiskEntry { file, size, disk });
    }
    let whole = || Ok::<_, Failure>(std::fs::File::open(&path)?.seek(SeekFrom::End(0))?);
    let size = match wanted.size {
        Some(size) => size,
        // A raw disk is used with its whole size.
        None if path.exists() && !path.is_file() => whole()?,
        None => wanted.default_size,
    };
    let config = StoreConfig { array: description.array, device: UNASSIGNED, size };
    let disk = device_file::create(&path, &config, wanted.overwrite)?;
    Ok(DiskEntry { file, size, disk })
}

/// A path that names the same for every process, also later: the view of one process (`/proc/self/cwd`) is resolved. Stable names of disks are
/// links, and are kept. A word that names nothing is refused: it is rather an option, or a spare, than the name of a new file.
fn lasting(path: &Path) -> Result<PathBuf, Failure> {
    let is_word = path.components().eq([Component::Normal(path.as_os_str())]);
    if is_word && path.symlink_metadata().is_err() {
        let message = format!("there is no file or disk {0}: no file is created from a word alone", shell_word(path));
        let hint = format!(
            "write {} to create a file in the current folder; `device replace --with-spare` uses a spare",
            shell_word(Path::new(".").join(path))
        );
        return Err(Failure::unreachable("no-such-disk", message).hint(hint));
    }
    let path = std::path::absolute(path)?;
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(path) };
    match parent.canonicalize() {
        Ok(parent) if parent.starts_with("/proc") => Ok(path.canonicalize().unwrap_or_else(|_| parent.join(name))),
        Ok(parent) => Ok(parent.join(name)),
        Err(_) => Ok(path),
    }
}

/// The disk at `path`, if it is a spare, or is being added. The disk of a device is refused.
fn known_at(folder: &LocalFolder, description: &ArrayDescription, path: &Path) -> Result<Option<DiskEntry>, Failure> {
    let identity = DiskIdentity::of(path);
    let same = |other: PathBuf| {
        let canonical = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        let overlaps = identity.zip(DiskIdentity::of(&other)).is_some_and(|(one, other)| one.overlaps(&other));
        overlaps || canonical(&other) == canonical(path)
    };
    let absolute = folder.absolute();
    if let Some(spare) = description.spares.iter().find(|spare| same(spare.path(&absolute))) {
        if identity == DiskIdentity::of(&spare.path(&absolute)) {
            return Ok(Some(spare.clone()));
        }
        let message = format!("{} is a part of a spare, or contains it", path.display());
        return Err(Failure::failed("disk-in-use", message).hint("choose a file or disk that is not in use"));
    }
    match description.devices.iter().find(|device| same(device.path(&absolute))) {
        None => Ok(None),
        Some(DeviceEntry { state: DeviceState::Adding, file, size, disk: Some(disk), .. }) => {
            Ok(Some(DiskEntry { file: file.clone(), size: *size, disk: *disk }))
        }
        Some(device) => {
            let message = format!("{} is the disk of device {}", path.display(), device.id);
            Err(Failure::failed("disk-in-use", message).hint("choose a file or disk that is not in use"))
        }
    }
}

/// Opens a disk of this array that has never been served; anything else is refused.
fn look_at(path: &Path, array: ArrayId) -> Result<DeviceFile, Failure> {
    let may_go = "use --overwrite to create it again if its content is not needed; or choose another file";
    let found = match DeviceFile::open(path, Expected::default()) {
        Err(failure) if failure.code == "not-a-device" => {
            let message = match DiskFacts::of(path) {
                Ok(facts) => format!("{facts}; it is not a disk of an array"),
                Err(_) => format!("{} already exists, and is not a disk of an array", path.display()),
            };
            return Err(Failure::failed("file-exists", message).hint(may_go));
        }
        found => found?,
    };
    let superblock = found.superblock();
    if superblock.array != array {
        let message = format!("{} is a disk of another array, {}", path.display(), superblock.array);
        return Err(Failure::failed("wrong-array", message).hint(may_go));
    }
    if !found.is_unassigned() {
        let message = format!("{} has been in use, as the disk of device {}", path.display(), superblock.device.0);
        return Err(Failure::failed("disk-used", message).hint(may_go));
    }
    Ok(found)
}

/// A file of the folder that does not exist, or that was created and never used.
fn unused_file(folder: &Path, description: &ArrayDescription, stem: &str) -> PathBuf {
    let is_unused = |path: &PathBuf| {
        let relative = path.strip_prefix(folder).unwrap_or(path);
        let spares = description.spares.iter().map(|spare| &spare.file);
        let others = description.devices.iter().flat_map(|device| device.others.iter().map(|other| &other.file));
        let mut files = description.devices.iter().map(|device| &device.file).chain(spares).chain(others);
        !files.any(|file| file == relative) && (!path.exists() || look_at(path, description.array).is_ok())
    };
    let names = (0..).map(|number| match number {
        0 => folder.join(format!("{stem}.braid")),
        number => folder.join(format!("{stem}.{number}.braid")),
    });
    names.into_iter().find(is_unused).expect("some number is unused")
}

/// The number of blocks that objects can have together on a disk of that size.
pub fn room(size: u64) -> Result<u64, Failure> {
    Ok(Geometry::room(size)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array_creation::tests::description;
    use braid_base::DeviceId;
    use std::os::fd::AsRawFd;

    fn folder(name: &str) -> (PathBuf, LocalFolder) {
        let dir = std::env::temp_dir().join(format!("braid-slots-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("array.json"), "{}").unwrap();
        (dir.clone(), LocalFolder::at(&dir))
    }

    fn new_disk(path: Option<PathBuf>) -> NewDisk {
        NewDisk { path, stem: "device-9".into(), size: None, default_size: 16 << 20, overwrite: false }
    }

    #[test]
    fn a_disk_is_made_once_and_what_has_a_past_or_is_something_else_is_refused() {
        let (dir, folder) = folder("made");
        let array = description(3);
        let code = |wanted: &NewDisk| prepare(&folder, &array, wanted).unwrap_err().code;
        let made = prepare(&folder, &array, &new_disk(None)).unwrap();
        assert_eq!((made.file.as_path(), made.size), (Path::new("device-9.braid"), 16 << 20));
        assert_eq!(prepare(&folder, &array, &new_disk(None)).unwrap(), made, "an interrupted command is continued");
        let path = dir.join("device-9.braid");
        assert_eq!(code(&NewDisk { size: Some(32 << 20), ..new_disk(Some(path.clone())) }), "bad-size");
        // It is served as device 9.
        let expected = Expected { array: Some(array.array), id: Some(DeviceId(9)) };
        let opened = DeviceFile::open(&path, expected).unwrap();
        assert_eq!((opened.superblock().device, opened.superblock().disk), (DeviceId(9), made.disk));
        assert_eq!(code(&new_disk(Some(path.clone()))), "device-in-use");
        drop(opened);
        assert_eq!(DeviceFile::open(&path, Expected::default()).unwrap().superblock().disk, made.disk);
        assert_eq!(code(&new_disk(Some(path.clone()))), "disk-used");
        assert_eq!(prepare(&folder, &array, &new_disk(None)).unwrap().file, Path::new("device-9.1.braid"));
        let anew = prepare(&folder, &array, &NewDisk { overwrite: true, ..new_disk(Some(path.clone())) }).unwrap();
        assert_ne!(anew.disk, made.disk);
        let other = description(3);
        let stranger = prepare(&folder, &other, &new_disk(Some(path))).unwrap_err();
        assert!(stranger.code == "wrong-array" && stranger.message.contains(&array.array.to_string()));
        std::fs::write(dir.join("notes"), "something").unwrap();
        assert_eq!(code(&new_disk(Some(dir.join("notes")))), "file-exists");
        std::fs::write(dir.join("device-1.braid"), "").unwrap();
        let overwrite = NewDisk { overwrite: true, ..new_disk(Some(dir.join("./device-1.braid"))) };
        assert_eq!(code(&overwrite), "disk-in-use");
        std::fs::hard_link(dir.join("device-1.braid"), dir.join("other.braid")).unwrap();
        assert_eq!(code(&NewDisk { overwrite: true, ..new_disk(Some(dir.join("other.braid"))) }), "disk-in-use");
        let notes = NewDisk { overwrite: true, ..new_disk(Some(dir.join("notes"))) };
        assert_eq!(code(&notes), "file-of-array");
        assert_eq!(std::fs::read(dir.join("notes")).unwrap(), b"something");
        assert_eq!(code(&NewDisk { size: Some(1 << 20), ..new_disk(Some(dir.join("small"))) }), "device-too-small");
        assert_eq!(code(&new_disk(Some("spare".into()))), "no-such-disk");
        let by_link =
            std::fs::File::open(&dir).map(|open| (format!("/proc/self/fd/{}", open.as_raw_fd()), open)).unwrap();
        let named = prepare(&folder, &array, &new_disk(Some(Path::new(&by_link.0).join("device-9.2.braid")))).unwrap();
        assert_eq!(named.file, Path::new("device-9.2.braid"), "not as it was written");
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn files_of_any_array_are_refused_even_behind_a_loop_device() {
        let ((dir, folder), (other, _)) = (folder("own"), folder("other"));
        let elsewhere = dir.with_extension("disk");
        std::fs::create_dir(other.join("inner")).unwrap();
        let [old, foreign, inner] = [dir.join("old.braid"), other.join("device-1.braid"), other.join("inner/some")];
        for file in [&old, &foreign, &inner, &elsewhere] {
            std::fs::File::create(file).unwrap().set_len(16 << 20).unwrap();
        }
        let link = dir.join("link.braid");
        std::os::unix::fs::symlink(&foreign, &link).unwrap();
        let array = description(3);
        let code = |path: &Path, overwrite| {
            let disk = NewDisk { overwrite, ..new_disk(Some(path.to_path_buf())) };
            prepare(&folder, &array, &disk).err().map(|failure| failure.code)
        };
        let of_array = Some("file-of-array".to_string());
        for (path, refused) in
            [(&foreign, &of_array), (&inner, &of_array), (&link, &of_array), (&old, &None), (&elsewhere, &None)]
        {
            assert_eq!(code(path, true), *refused, "{path:?}");
        }
        std::os::unix::fs::symlink("gone/away", dir.join("dangling")).unwrap();
        for overwrite in [false, true] {
            assert_eq!(code(&dir.join("dangling"), overwrite).as_deref(), Some("no-such-disk"));
            assert!(!dir.join("gone").exists());
        }
        let locked = DeviceFile::open(&elsewhere, Expected::default()).unwrap();
        let losetup = |words: &[&str]| {
            let said = std::process::Command::new("losetup").args(words).output();
            said.ok().filter(|said| said.status.success()).map(|said| String::from_utf8(said.stdout).unwrap())
        };
        let in_use = Some("device-in-use".to_string());
        for (file, refused) in [(&foreign, &of_array), (&old, &of_array), (&elsewhere, &in_use)] {
            let Some(said) = losetup(&["--find", "--show", file.to_str().unwrap()]) else {
                eprintln!("skipped: only root can make loop devices");
                break;
            };
            let codes = [false, true].map(|overwrite| code(Path::new(said.trim()), overwrite));
            losetup(&["--detach", said.trim()]).unwrap();
            assert_eq!(codes, [refused.clone(), refused.clone()], "{file:?}");
        }
        drop(locked);
        std::fs::remove_dir_all(dir).and_then(|()| std::fs::remove_dir_all(other)).unwrap();
        std::fs::remove_file(elsewhere).unwrap();
    }
}
