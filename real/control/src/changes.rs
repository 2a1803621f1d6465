//! The events of a change of the description: devices and spares that were added or removed, volumes and file systems that were created,
//! deleted, resized, migrated or reordered, and who did that. They follow from the description before and after each change, so that no way
//! of changing it is without an event.

use crate::event_log::{Event, EventKind};
use crate::{ArrayDescription, DeviceState, FileSystemState, LocalFolder, VolumeEntry, VolumeState};
use braid_base::units::format_size;
use std::path::Path;

/// Words of a command that name it, after the program.
const WORDS: usize = 2;

pub(crate) fn events(before: &ArrayDescription, after: &ArrayDescription) -> Vec<Event> {
    let mut events = of_devices(before, after);
    for volume in &after.volumes {
        let was = before.volumes.iter().find(|was| was.id == volume.id);
        let of_files = after.file_system_of(volume).is_some();
        match was {
            Some(was) if exists(was) => events.extend(of_volume(was, volume, after)),
            _ if exists(volume) && !of_files => {
                let VolumeEntry { name, layout, .. } = volume;
                let text = format!("volume {name} was created: {}, {layout}", format_size(volume.bytes));
                events.push(Event::now(EventKind::VolumeCreated, text).of_volume(name).with("bytes", volume.bytes));
            }
            _ => {}
        }
    }
    for was in before.volumes.iter().filter(|was| exists(was) && before.file_system_of(was).is_none()) {
        if after.volumes.iter().all(|volume| volume.id != was.id || !exists(volume)) {
            let text = format!("volume {} was deleted", was.name);
            let event = Event::now(EventKind::VolumeDeleted, text).of_volume(&was.name);
            events.push(event.with("bytes", was.bytes).with("id", was.id));
        }
    }
    let ready = |description: &ArrayDescription| {
        let ready = description.file_systems.iter().filter(|entry| entry.state == FileSystemState::Ready);
        ready.map(|entry| (entry.id, entry.name.clone())).collect::<Vec<_>>()
    };
    let (had, has) = (ready(before), ready(after));
    for (kind, text, of, without) in
        [(EventKind::FileSystemCreated, "created", &has, &had), (EventKind::FileSystemDeleted, "deleted", &had, &has)]
    {
        let gone = of.iter().filter(|entry| !without.contains(entry));
        let event = |(id, name): &(u16, String)| {
            Event::now(kind, format!("file system {name} was {text}")).with("id", (*id).into())
        };
        events.extend(gone.map(event));
    }
    events.into_iter().map(by_this_command).collect()
}

/// The devices and spares that are there now, and those that are gone.
fn of_devices(before: &ArrayDescription, after: &ArrayDescription) -> Vec<Event> {
    let of = |array: &ArrayDescription| {
        let devices = array.devices.iter().filter(|entry| entry.state != DeviceState::Adding);
        let devices = devices.map(|it| (format!("device d{}", it.id), Some(it.id), it.size, it.file.clone()));
        let spares = array.spares.iter().map(|it| (format!("spare {}", it.disk), None, it.size, it.file.clone()));
        devices.chain(spares).collect::<Vec<_>>()
    };
    let (had, has, mut events) = (of(before), of(after), Vec::new());
    // A spare that fills a slot is still there.
    let fills = |file: &Path| after.devices.iter().flat_map(|entry| &entry.others).any(|disk| disk.file == file);
    for (kind, verb, of, without) in
        [(EventKind::DeviceAdded, "added", &has, &had), (EventKind::DeviceRemoved, "removed", &had, &has)]
    {
        let is_new = |called: &String| !without.iter().any(|(other, ..)| other == called);
        for (called, id, size, file) in
            of.iter().filter(|(called, id, _, file)| is_new(called) && (id.is_some() || !fills(file)))
        {
            let event = Event::now(kind, format!("{called} was {verb}: {} in {}", format_size(*size), file.display()));
            events.push(id.iter().fold(event.with("bytes", *size), |event, id| event.of_device(*id)));
        }
    }
    events
}

/// The event, with who did that.
pub(crate) fn by_this_command(mut event: Event) -> Event {
    let (by, pid, user) = (this_command(), std::process::id(), rustix::process::geteuid().as_raw());
    event.text += &format!(" (by user {user}, `{by}`, process {pid})");
    event.process = Some(by);
    event.with("pid", pid.into()).with("user", user.into())
}

impl LocalFolder {
    pub(crate) fn removed(&self, kind: EventKind, id: u64) -> Option<String> {
        let (events, _) = self.events().ok()?;
        removed(events.iter(), kind, id)
    }
}

/// The name that a volume or file system of this number had, if one of these events is its deletion.
pub fn removed<'a>(events: impl DoubleEndedIterator<Item = &'a Event>, kind: EventKind, id: u64) -> Option<String> {
    let event = events.rev().find(|event| event.kind == kind && event.figures.get("id") == Some(&id))?;
    // Names have no spaces.
    event.volume.clone().or_else(|| event.text.split(' ').nth(2).map(str::to_string))
}

/// True if hosts can use the volume.
fn exists(volume: &VolumeEntry) -> bool {
    !matches!(volume.state, VolumeState::Creating | VolumeState::Deleting)
}

fn of_volume(was: &VolumeEntry, volume: &VolumeEntry, after: &ArrayDescription) -> Vec<Event> {
    let (name, mut events) = (&volume.name, Vec::new());
    let mut add = |kind, text: String| events.push(Event::now(kind, text).of_volume(name));
    if was.bytes != volume.bytes {
        let [from, to] = [was.bytes, volume.bytes].map(format_size);
        match after.file_system_of(volume) {
            Some(entry) => {
                add(EventKind::FileSystemResized, format!("file system {} grew from {from} to {to}", entry.name));
            }
            None => add(EventKind::VolumeResized, format!("volume {name} grew from {from} to {to}")),
        }
    }
    if was.ordering != volume.ordering {
        let text = format!("the ordering of volume {name} was {}; it is now {}", was.ordering, volume.ordering);
        add(EventKind::VolumeReordered, text);
    }
    let place = |layout: &str, devices: &[u16]| {
        let devices: Vec<_> = devices.iter().map(|device| format!("d{device}")).collect();
        format!("{layout} on {}", devices.join(", "))
    };
    let (from, now) = (place(&was.layout, &was.devices), place(&volume.layout, &volume.devices));
    match (&was.moving, &volume.moving) {
        (None, Some(target)) => {
            let to = place(&target.layout, &target.devices);
            add(EventKind::MigrationBegun, format!("volume {name} is migrated from {from} to {to}"));
        }
        (Some(_), None) if from == now => {
            add(EventKind::MigrationEnded, format!("the migration of volume {name} was abandoned: it is {now}"));
        }
        (Some(_), None) => add(EventKind::MigrationEnded, format!("volume {name} was migrated from {from} to {now}")),
        _ => {}
    }
    events
}

/// The command that this process runs: `braid volume create`.
fn this_command() -> String {
    let command = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let mut words = command.split(|byte| *byte == 0).map(String::from_utf8_lossy).map(|word| word.into_owned());
    let program = words.next().unwrap_or_default();
    let program = program.rsplit('/').next().unwrap_or_default().to_string();
    let mut named = vec![program];
    while let Some(word) = words.next() {
        match word.as_str() {
            // Options of every command, which may precede it.
            "--array" | "--memory" if named.len() == 1 => drop(words.next()),
            option if option.starts_with('-') && named.len() == 1 => {}
            word if word.is_empty() || word.starts_with('-') || named.len() > WORDS => break,
            _ => named.push(word),
        }
    }
    named.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DeviceEntry, DiskEntry, FileSystemEntry, PlacementEntry};
    use braid_base::DiskId;

    fn volume(id: u64, name: &str) -> VolumeEntry {
        serde_json::from_value(serde_json::json!({
            "name": name, "id": id, "bytes": 1 << 20, "layout": "raid1:2", "unit": 65536, "devices": [0, 1],
            "ordering": "timestamp", "state": "ready",
        }))
        .unwrap()
    }

    fn array(volumes: &[VolumeEntry], files: &[FileSystemState]) -> ArrayDescription {
        let mut array: ArrayDescription = serde_json::from_value(serde_json::json!({
            "schema": 2, "array": "6d1a4ea2-7d5b-4bd8-9f0c-0d5c2f0f9d11", "revision": 3, "created": true,
            "populated": true, "next_volume": 9, "devices": [], "volumes": [],
            "creation": {"devices": 3, "size": 1 << 30, "layout": "raid5:2+1", "unit": 65536, "volumes": []},
        }))
        .unwrap();
        array.volumes = volumes.to_vec();
        let entry = |(id, state): (usize, &FileSystemState)| FileSystemEntry {
            id: id as u16,
            state: *state,
            ..FileSystemEntry::new("home".into(), None)
        };
        array.file_systems = files.iter().enumerate().map(entry).collect();
        array
    }

    #[test]
    fn every_change_of_a_volume_or_file_system_is_an_event_and_nothing_else_is() {
        let plain = volume(1, "v");
        let of = |change: &dyn Fn(&mut VolumeEntry)| {
            let mut volume = plain.clone();
            change(&mut volume);
            array(&[volume], &[])
        };
        let there = of(&|_| {});
        let target = PlacementEntry {
            layout: "raid5:2+1".into(),
            unit: 65536,
            devices: vec![0, 1, 2],
            first_block: 0,
            copied_to: 0,
            begun: 1,
        };
        let moving = of(&|volume| volume.moving = Some(target.clone()));
        let moved = of(&|volume| (volume.layout, volume.devices) = (target.layout.clone(), target.devices.clone()));
        let creating = of(&|volume| volume.state = VolumeState::Creating);
        let deleting = of(&|volume| volume.state = VolumeState::Deleting);
        let (none, data) = (array(&[], &[]), volume(2, "home.data"));
        let mut larger = data.clone();
        larger.bytes *= 2;
        let files = |state, volume: &VolumeEntry| array(std::slice::from_ref(volume), &[state]);
        let ready = files(FileSystemState::Ready, &data);
        let with = |state: &str, spares: &[u64], others: &[u64]| {
            let disk = |id: &u64| DiskEntry { file: format!("y{id}").into(), size: 1 << 20, disk: DiskId(*id) };
            let [spares, others] = [spares, others].map(|disks| disks.iter().map(disk).collect());
            let device = serde_json::json!({"id": 3, "file": "x", "size": 1 << 20, "domain": "a", "state": state});
            let device = DeviceEntry { others, ..serde_json::from_value(device).unwrap() };
            ArrayDescription { spares, devices: vec![device], ..none.clone() }
        };
        let [adding, added, removing] = ["adding", "ready", "removing"].map(|state| with(state, &[], &[]));
        let spare = with("ready", &[5], &[]);
        let table: [(&ArrayDescription, &ArrayDescription, &[&str]); 25] = [
            (&none, &adding, &[]),
            (&adding, &added, &["device d3 was added: 1 MiB in x"]),
            (&added, &removing, &[]),
            (&removing, &none, &["device d3 was removed"]),
            (&added, &spare, &["was added: 1 MiB in y5"]),
            (&spare, &added, &["was removed: 1 MiB in y5"]),
            (&spare, &with("ready", &[], &[5]), &[]),
            (&none, &creating, &[]),
            (&creating, &there, &["volume v was created: 1 MiB, raid1:2"]),
            (&none, &there, &["volume v was created"]),
            (&there, &there, &[]),
            (&there, &of(&|volume| volume.parity_site = "adaptive".into()), &[]),
            (&there, &of(&|volume| volume.bytes = 2 << 20), &["volume v grew from 1 MiB to 2 MiB"]),
            (&there, &of(&|volume| volume.ordering = "device-lock".into()), &["was timestamp; it is now device-lock"]),
            (&there, &moving, &["volume v is migrated from raid1:2 on d0, d1 to raid5:2+1 on d0, d1, d2"]),
            (&moving, &moved, &["volume v was migrated from raid1:2 on d0, d1 to raid5:2+1 on d0, d1, d2"]),
            (&moving, &there, &["the migration of volume v was abandoned"]),
            (&there, &deleting, &["volume v was deleted"]),
            (&deleting, &none, &[]),
            (&there, &none, &["volume v was deleted"]),
            (&creating, &none, &[]),
            (&files(FileSystemState::Creating, &data), &ready, &["file system home was created"]),
            (&ready, &files(FileSystemState::Ready, &larger), &["file system home grew from 1 MiB to 2 MiB"]),
            (&ready, &files(FileSystemState::Deleting, &data), &["file system home was deleted"]),
            (&files(FileSystemState::Deleting, &data), &none, &[]),
        ];
        for (index, (before, after, expected)) in table.into_iter().enumerate() {
            let events = events(before, after);
            let found: Vec<_> = events.iter().map(|event| event.text.as_str()).collect();
            let are_those = found.len() == expected.len() && found.iter().zip(expected).all(|(a, b)| a.contains(b));
            assert!(are_those, "{index}: {found:?}, not {expected:?}");
            let pid = std::process::id().to_string();
            assert!(found.iter().all(|text| text.contains(&format!("process {pid}"))), "who: {found:?}");
        }
    }
}
