//! The bounds of commands to metadata servers.

use crate::any::file_reply;
use crate::limits::*;
use braid_base::InodeId;
use braid_base::limits::*;
use braid_wire::*;
use proptest::prelude::*;

const INODE: InodeId = InodeId(7);

fn request(sequence: u64, over: Vec<u64>, command: FileCommand) -> Message {
    Message::FileRequest(FileRequest { host: Generation(7), settled: 0, over, sequence, command })
}

fn extent(at: u64, count: u64) -> FileExtent {
    FileExtent { at, blocks: BlockRange::new(9, count) }
}

fn attach(extents: Vec<FileExtent>, size: u64) -> FileCommand {
    FileCommand::Attach { inode: INODE, extents, size, mtime: FileTime(0) }
}

fn give_back(runs: usize) -> FileCommand {
    FileCommand::GiveBack { runs: vec![BlockRange::new(1, 1); runs] }
}

fn lookup(name: &[u8]) -> FileCommand {
    FileCommand::Lookup { parent: INODE, name: Bytes::copy_from_slice(name) }
}

fn link_to(target: usize) -> FileCommand {
    create(NewInode::SymbolicLink { target: vec![b'/'; target].into() }, true, 0o777)
}

fn create(node: NewInode, exclusive: bool, mode: u16) -> FileCommand {
    let (parent, name, owner) = (INODE, Bytes::from_static(b"a"), Owner::default());
    FileCommand::Create { parent, name, node, exclusive, owner, mode }
}

fn set_mode(mode: u16) -> FileCommand {
    FileCommand::SetAttributes { inode: INODE, change: AttributeChange { mode: Some(mode), ..Default::default() } }
}

#[test]
fn the_highest_sequence_of_a_file_request_is_refused() {
    let of = |sequence| decoded(request(sequence, vec![], FileCommand::Nothing));
    assert_eq!(of(u64::MAX - 1), Ok(()));
    assert_eq!(of(u64::MAX), Err(WireError::BadValue { what: "sequence" }));
}

#[test]
fn a_command_is_checked() {
    let (name, target) = (FILE_NAME_BYTES_MAX, SYMBOLIC_LINK_BYTES_MAX);
    let rename = |from: &'static [u8], to: &'static [u8]| FileCommand::Rename {
        parent: INODE,
        name: Bytes::from_static(from),
        new_parent: INODE,
        new_name: Bytes::from_static(to),
        no_replace: false,
    };
    for (command, expected) in [
        (lookup(b"a"), Ok(())),
        (lookup(b"..."), Ok(())),
        (lookup(&vec![0xff; name]), Ok(())),
        (lookup(&vec![0xff; name + 1]), Err(FileError::NameTooLong)),
        (lookup(b""), Err(FileError::InvalidName)),
        (lookup(b"."), Err(FileError::InvalidName)),
        (lookup(b".."), Err(FileError::InvalidName)),
        (lookup(b"a/b"), Err(FileError::InvalidName)),
        (lookup(b"a\0"), Err(FileError::InvalidName)),
        (rename(b"a", b"b"), Ok(())),
        (rename(b"", b"b"), Err(FileError::InvalidName)),
        (rename(b"a", b""), Err(FileError::InvalidName)),
        (link_to(target), Ok(())),
        (link_to(target + 1), Err(FileError::NameTooLong)),
        (link_to(0), Err(FileError::InvalidName)),
        (create(NewInode::Regular, true, OPENS | 0o7777), Ok(())),
        (create(NewInode::Regular, false, OPENS | 0o644), Err(FileError::Malformed)),
        (create(NewInode::Directory, true, OPENS | 0o755), Err(FileError::Malformed)),
        (create(NewInode::Regular, true, OPENS | 0o10000), Err(FileError::Malformed)),
        (set_mode(OPENS | 0o644), Err(FileError::Malformed)),
        (set_mode(0o7777), Ok(())),
        (set_mode(0o10000), Err(FileError::Malformed)),
        (FileCommand::Truncate { inode: INODE, size: FILE_BYTES_MAX }, Ok(())),
        (FileCommand::Truncate { inode: INODE, size: FILE_BYTES_MAX + 1 }, Err(FileError::TooLarge)),
        (FileCommand::Reserve { blocks: 0 }, Err(FileError::Malformed)),
        (FileCommand::Reserve { blocks: RESERVED_BLOCKS_MAX }, Ok(())),
        (FileCommand::Reserve { blocks: RESERVED_BLOCKS_MAX + 1 }, Err(FileError::Malformed)),
        (give_back(FILE_EXTENTS_MAX), Ok(())),
        (give_back(FILE_EXTENTS_MAX + 1), Err(FileError::Malformed)),
        (FileCommand::GiveBack { runs: vec![BlockRange::new(1, 0)] }, Err(FileError::Malformed)),
        (attach(vec![extent(0, 2), extent(2, 1)], 3 * 4096), Ok(())),
        (attach(vec![extent(0, 2), extent(2, 1)], 2 * 4096 + 1), Ok(())),
        (attach(vec![extent(0, 2), extent(2, 1)], 2 * 4096), Err(FileError::Malformed)),
        (attach(vec![extent(0, 2), extent(1, 1)], 1 << 20), Err(FileError::Malformed)),
        (attach(vec![extent(0, 0)], 1 << 20), Err(FileError::Malformed)),
        (attach(vec![extent(u64::MAX, 2)], 1 << 20), Err(FileError::Malformed)),
        (attach(vec![], FILE_BYTES_MAX + 1), Err(FileError::TooLarge)),
    ] {
        assert_eq!(command.check(), expected, "{command:?}");
    }
}

proptest! {
    #[test]
    fn every_reply_is_stored_and_read_again(reply in file_reply()) {
        prop_assert_eq!(decode_reply(&encode_reply(&reply).into()), Ok(reply));
    }

    #[test]
    fn a_damaged_stored_reply_is_an_error_or_another_reply(reply in file_reply(), at in any::<prop::sample::Index>(), by in 1..=255u8) {
        let mut bytes = encode_reply(&reply);
        let at = at.index(bytes.len());
        bytes[at] ^= by;
        if let Ok(other) = decode_reply(&bytes.clone().into()) {
            prop_assert_ne!(&other, &reply);
            prop_assert_eq!(encode_reply(&other), bytes);
        }
    }
}
