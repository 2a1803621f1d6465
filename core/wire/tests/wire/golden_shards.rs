//! The encoding of the messages among metadata servers, and of the parts of operations that they keep.

use crate::golden::{Golden, OBJECT, TICKET};
use crate::golden_files::{ATTRIBUTES, NAME, attributes};
use braid_base::{BlockRange, Encoded, Generation, InodeId, ShardId};
use braid_wire::*;
use bytes::Bytes;

/// Every variant at least once.
pub fn shards() -> Vec<Golden> {
    let (start, number, inode, parent) = (Generation(5), 6, InodeId(0x21), InodeId(6));
    let name = || Bytes::from_static(b"abc");
    let entry = DirectoryEntry { cookie: 6, inode, file_type: FileType::Directory, name: name() };
    let read = |question| ShardBody::Read { start, number, question };
    let answer = |reply| ShardBody::ReadAnswer { start, number, reply };
    let bodies = [
        (ShardBody::Commit { message: name() }, format!("01 {NAME}")),
        (read(ShardQuestion::Inode { inode }), format!("02 05000000 {TICKET} 01 {OBJECT}")),
        (read(ShardQuestion::Name { parent, name: name() }), format!("02 05000000 {TICKET} 02 {TICKET} {NAME}")),
        (read(ShardQuestion::Moves), format!("02 05000000 {TICKET} 03")),
        (read(ShardQuestion::Place { inode }), format!("02 05000000 {TICKET} 04 {OBJECT}")),
        (answer(Ok(ShardReply::Inode(attributes()))), format!("03 05000000 {TICKET} 01 01 {ATTRIBUTES}")),
        (
            answer(Ok(ShardReply::Name(Some(entry)))),
            format!("03 05000000 {TICKET} 01 02 01 {TICKET} {OBJECT} 02 {NAME}"),
        ),
        (answer(Ok(ShardReply::Name(None))), format!("03 05000000 {TICKET} 01 02 00")),
        (answer(Ok(ShardReply::Moves(6))), format!("03 05000000 {TICKET} 01 03 {TICKET}")),
        (answer(Err(FileError::Stale)), format!("03 05000000 {TICKET} 02 01")),
        (
            ShardBody::SpaceRequest { start, round: 6, received: 6, blocks: 6 },
            format!("04 05000000 {TICKET} {TICKET} {TICKET}"),
        ),
        (
            ShardBody::SpaceTransfer { start, round: 6, number: 6, runs: vec![BlockRange::new(6, 6)] },
            format!("05 05000000 {TICKET} {TICKET} 01000000 {TICKET} {TICKET}"),
        ),
    ];
    let golden = |(body, hex): (ShardBody, String)| Golden {
        message: Message::Shard(ShardMessage { from: ShardId(1), body }),
        description: format!("0a 01 {hex}"),
    };
    bodies.into_iter().map(golden).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn parts_are_encoded_as_written_down() {
    let (inode, parent, file_type) = (InodeId(0x21), InodeId(6), FileType::Directory);
    let name = || Bytes::from_static(b"abc");
    let owner = Owner { uid: 1000, gid: 100 };
    let parts = [
        (
            ShardPart::Make { inode: Some(inode), parent, node: NewInode::Regular, owner, mode: 0o644 },
            format!("01 01 {OBJECT} {TICKET} 01 e8030000 64000000 a401"),
        ),
        (ShardPart::GainName { inode }, format!("02 {OBJECT}")),
        (ShardPart::LoseName { inode }, format!("03 {OBJECT}")),
        (ShardPart::LoseDirectory { inode }, format!("04 {OBJECT}")),
        (ShardPart::Moved { inode, parent }, format!("05 {OBJECT} {TICKET}")),
        (ShardPart::Insert { parent, name: name(), inode: None, file_type }, format!("06 {TICKET} {NAME} 00 02")),
    ];
    let (parts, described): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
    let parts = ShardParts { now: FileTime(-1), parts };
    let described = format!("ffffffffffffffff 06000000 {}", described.join(" ")).replace(' ', "");
    let whole = |described: &str| format!("{}{described}", hex(&(described.len() as u32 / 2).to_le_bytes()));
    assert_eq!(hex(&parts.encode()), whole(&described));
    assert_eq!(ShardParts::decode(&parts.encode()), Some(parts));
    let of_a_later_build = Bytes::from_static(b"later");
    assert_eq!(ShardParts::decode(&of_a_later_build), None);
    assert_eq!(Result::<ShardParts, Bytes>::decode(&of_a_later_build), Some(Err(of_a_later_build)));
    assert_eq!(FileError::Stale.encode(), encode_reply(&Err(FileError::Stale)));
    let rest = [
        (ShardPart::Remove { parent, name: name(), inode }, format!("07 {TICKET} {NAME} {OBJECT}")),
        (
            ShardPart::Replace { parent, name: name(), from: inode, to: parent, file_type },
            format!("08 {TICKET} {NAME} {OBJECT} {TICKET} 02"),
        ),
        (ShardPart::CountMove { moves: 6 }, format!("09 {TICKET}")),
    ];
    let (rest, described): (Vec<_>, Vec<_>) = rest.into_iter().unzip();
    let own = ShardParts { now: FileTime(-1), parts: rest };
    let command = FileCommand::Nothing;
    let inodes = vec![attributes()];
    let all = CoordinatorParts { host: Generation(7), sequence: 6, command, own, inodes };
    let described =
        format!("07000000 {TICKET} 01 ffffffffffffffff 03000000 {} 01000000 {ATTRIBUTES}", described.join(" "))
            .replace(' ', "");
    assert_eq!(hex(&all.encode()), whole(&described));
    assert_eq!(CoordinatorParts::decode(&all.encode()), Some(all));
}
