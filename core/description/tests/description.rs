//! A description that the release before has written: its bytes stay as they are, and commands do with it what the protocol expects.

use braid_base::{DeviceId, Generation, VolumeId};
use braid_control_protocol::{
    Answer, Command, DeviceRecord, DeviceState, FileSystemRecord, FileSystemState, Version, VolumeRecord, VolumeState,
};
use braid_description::{
    Applied, ArrayDescription, Change, DeviceEntry, FileSystemEntry, FormatError, Refusal, SCHEMA, SCHEMA_OF_GROWTH,
    ShardsEntry, Subject, VolumeEntry, describe, format, parse, record, set_record,
};

const FILE: &[u8] = include_bytes!("array.json");

fn array() -> ArrayDescription {
    let array: ArrayDescription = parse(FILE).unwrap();
    array.check().unwrap();
    array
}

/// The answer, and the description afterwards.
fn done(array: &ArrayDescription, subject: &Subject, command: Command) -> (Answer, ArrayDescription) {
    let Applied { answer, next } = array.apply(subject, command).unwrap();
    if let Some(next) = &next {
        assert_eq!(answer, Answer::Replaced { version: Version(array.revision + 1) });
        assert_eq!(next.revision, array.revision + 1);
        next.check().unwrap();
    }
    (answer, next.map_or_else(|| array.clone(), |next| *next))
}

fn volume(array: &ArrayDescription, id: u64) -> Option<VolumeRecord> {
    match done(array, &Subject::Volume(VolumeId(id), None), Command::Read).0 {
        Answer::Record { record, .. } => record.map(|record| *record),
        other => panic!("{other:?}"),
    }
}

fn device(array: &ArrayDescription, subject: &Subject) -> (Option<DeviceRecord>, bool, Vec<u64>) {
    match done(array, subject, Command::ReadDevice).0 {
        Answer::Device { record, is_used, volumes, .. } => (record, is_used, volumes.iter().map(|id| id.0).collect()),
        other => panic!("{other:?}"),
    }
}

fn file_system(array: &ArrayDescription, subject: &Subject) -> Option<FileSystemRecord> {
    match done(array, subject, Command::ReadFileSystem).0 {
        Answer::FileSystem { record, .. } => record,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_description_is_written_as_the_release_before_has_written_it() {
    let array = array();
    assert_eq!(String::from_utf8(format(&array).unwrap()).unwrap(), String::from_utf8(FILE.to_vec()).unwrap());
    for entry in &array.volumes {
        let mut written = entry.clone();
        set_record(&mut written, &record(entry).unwrap()).unwrap();
        assert_eq!(&written, entry);
    }
    let newer = String::from_utf8(FILE.to_vec()).unwrap().replace("\"schema\": 2", "\"schema\": 4");
    assert_eq!(parse::<ArrayDescription>(newer.as_bytes()), Err(FormatError::Newer { found: 4 }));
    let mut grows = array.clone();
    grows.volumes[0].state = braid_description::VolumeState::Draining { to: Change::Grow(1 << 21), by: 1 };
    assert_eq!(grows.changed(|_| Ok::<_, ()>(())).unwrap().1.schema, SCHEMA_OF_GROWTH);
    assert_eq!(array.changed(|_| Ok::<_, ()>(())).unwrap().1.schema, SCHEMA);
}

#[test]
fn a_command_after_another_version_changes_nothing() {
    let (array, by) = (array(), Generation(30));
    let subjects = (Subject::Volume(VolumeId(1), None), Subject::Device(DeviceId(0), None), Subject::FileSystem(2));
    let (a_volume, a_device) = (volume(&array, 1).unwrap(), device(&array, &subjects.1).0.unwrap());
    for revision in [0, array.revision - 1, array.revision + 1] {
        let after = Version(revision);
        for (subject, command) in [
            (&subjects.0, Command::Replace { after, record: a_volume.clone() }),
            (&subjects.0, Command::Remove { after }),
            (&subjects.0, Command::Confirm { version: after }),
            (&subjects.1, Command::ReplaceDevice { after, record: a_device.clone() }),
            (&subjects.1, Command::RemoveDevice { after }),
            (&subjects.2, Command::EnterFileSystem { after, by }),
            (&subjects.2, Command::ReplaceFileSystem { after, state: FileSystemState::Ready }),
            (&subjects.2, Command::RemoveFileSystem { after }),
        ] {
            let applied = array.apply(subject, command).unwrap();
            assert_eq!(applied, Applied { answer: Answer::Superseded, next: None });
        }
    }
    let version = Version(array.revision);
    assert_eq!(done(&array, &subjects.0, Command::Confirm { version }).0, Answer::Yes);
}

#[test]
fn a_volume_is_entered_once_replaced_and_removed_and_its_number_stays_used() {
    let array = array();
    let (after, by, id) = (Version(array.revision), Generation(30), VolumeId(9));
    let described = braid_layout::VolumeDescription { id, ..describe(&array.volumes[0]).unwrap() };
    let entered = VolumeRecord { volume: described.clone(), state: VolumeState::Creating { by }, copied: None };
    let replace = |after| Command::Replace { after, record: entered.clone() };
    let named = |name: &str| Subject::Volume(id, Some(Box::new(VolumeEntry::new(name.into(), &described))));
    assert_eq!(done(&array, &Subject::Volume(id, None), replace(after)).0, Answer::Superseded, "it is gone");
    let refused = |name: &str| array.apply(&named(name), replace(after)).unwrap_err();
    assert_eq!(refused("plain"), Refusal::VolumeExists { name: "plain".into() });
    let of_files = Refusal::NameOfFileSystem { name: "home.data".into(), file_system: "home".into() };
    assert_eq!(refused("home.data"), of_files, "host 22 creates that");
    let (_, there) = done(&array, &named("new"), replace(after));
    assert_eq!((volume(&there, 9), there.next_volume), (Some(entered.clone()), 10));
    let ready = VolumeRecord { state: VolumeState::Ready, ..entered.clone() };
    let command = Command::Replace { after: Version(there.revision), record: ready.clone() };
    let (_, there) = done(&there, &named("new"), command);
    assert_eq!((volume(&there, 9), &there.volume("new").unwrap().by), (Some(ready), &None));
    let is_there = |name| matches!(done(&there, &named(name), Command::Read).0, Answer::Record { record: Some(_), .. });
    assert!(is_there("new") && !is_there("like it"), "a volume that is created has a name");
    let (_, gone) = done(&there, &named("new"), Command::Remove { after: Version(there.revision) });
    assert_eq!((volume(&gone, 9), gone.next_volume, gone.volumes), (None, 10, array.volumes.clone()));
    // The host that creates the file system may enter its volumes.
    let of_files = VolumeRecord { state: VolumeState::Creating { by: Generation(22) }, ..entered };
    let (answer, _) = done(&array, &named("home.data"), Command::Replace { after, record: of_files });
    assert_eq!(answer, Answer::Replaced { version: Version(array.revision + 1) });
}

#[test]
fn a_device_is_entered_with_its_disk_and_its_number_stays_used() {
    let array = array();
    let (after, by) = (Version(array.revision), Generation(30));
    let spare = array.spares[0].clone();
    let entry = DeviceEntry { id: 6, file: spare.file.clone(), disk: Some(spare.disk), ..array.devices[0].clone() };
    let (new, old) = (Subject::NewDevice(Box::new(entry)), Subject::Device(DeviceId(6), None));
    let adding = DeviceRecord { disk: Some(spare.disk), others: Default::default(), state: DeviceState::Adding { by } };
    let replace = |after, record: &DeviceRecord| Command::ReplaceDevice { after, record: record.clone() };
    assert_eq!(device(&array, &old), (None, false, vec![]));
    assert_eq!(done(&array, &old, replace(after, &adding)).0, Answer::Superseded, "it is gone");
    let (_, mut there) = done(&array, &new, replace(after, &adding));
    assert_eq!((device(&there, &old), there.spares.len()), ((Some(adding), true, vec![]), 0));
    there.next_device = 0; // As in descriptions of early releases.
    let (_, gone) = done(&there, &old, Command::RemoveDevice { after: Version(there.revision) });
    assert_eq!(device(&gone, &old), (None, true, vec![]));
    // Volume 5 is about to move to device 0, and volume 3 moves there.
    let at = |id| Subject::Device(DeviceId(id), None);
    let (record, _, volumes) = device(&array, &at(1));
    assert_eq!(volumes, [1, 3, 4, 5, 6, 7]);
    assert_eq!(device(&array, &at(0)).2, [1, 2, 3, 5]);
    // A disk that is to fill the slot is kept while the record has it.
    let mut record = record.unwrap();
    assert_eq!(record.state, DeviceState::Removing { by: Generation(17) });
    record.others = [spare.disk].into();
    let (_, next) = done(&array, &Subject::Device(DeviceId(1), Some(spare.clone())), replace(after, &record));
    assert_eq!((device(&next, &at(1)).0, &next.device(1).unwrap().others[..]), (Some(record), &[spare][..]));
}

#[test]
fn a_file_system_is_entered_with_unused_numbers_and_leaves_none_of_them() {
    let array = array();
    let (after, by) = (Version(array.revision), Generation(30));
    let shards = array.file_systems[0].shards.clone();
    let named = |name: &str, shards: &Option<ShardsEntry>| {
        Subject::NewFileSystem(Box::new(FileSystemEntry::new(name.into(), shards.clone())))
    };
    let enter = Command::EnterFileSystem { after, by };
    let mut taken = array.clone();
    taken.volumes[0].name = "new.meta1".into();
    let refusal = taken.apply(&named("new", &shards), enter.clone()).unwrap_err();
    assert_eq!(refusal, Refusal::VolumeInTheWay { name: "new".into(), volume: "new.meta1".into() });
    let used = ArrayDescription { last_file_system: u16::MAX - 1, ..array.clone() };
    assert_eq!(used.apply(&named("new", &shards), enter.clone()), Err(Refusal::NumbersUsed));
    let mut full = array.clone();
    let many = braid_base::limits::FILE_SYSTEMS_MAX as u16 - 3;
    full.file_systems.extend((0..many).map(|id| FileSystemEntry { id: 3 + id, ..array.file_systems[1].clone() }));
    assert_eq!(full.apply(&named("new", &None), enter.clone()), Err(Refusal::TooManyFileSystems));

    let (_, there) = done(&array, &named("new", &shards), enter);
    let subject = Subject::FileSystem(4);
    let servers = vec![braid_base::FileSystemId(4), braid_base::FileSystemId(5)];
    let record = FileSystemRecord { servers, volumes: vec![], state: FileSystemState::Creating { by } };
    assert_eq!((file_system(&there, &subject), there.last_file_system), (Some(record), 5));
    assert_eq!(there.file_systems[2].volumes(), ["new.meta", "new.meta1", "new.data"]);
    let command = Command::ReplaceFileSystem { after: Version(there.revision), state: FileSystemState::Deleting };
    let (_, deleting) = done(&there, &subject, command);
    assert_eq!(file_system(&deleting, &subject).unwrap().state, FileSystemState::Deleting);
    let (_, gone) = done(&deleting, &subject, Command::RemoveFileSystem { after: Version(deleting.revision) });
    assert_eq!((file_system(&gone, &subject), gone.last_file_system), (None, 5));
    assert_eq!(file_system(&array, &Subject::FileSystem(2)).unwrap().volumes, [VolumeId(6), VolumeId(7)]);
}
