//! The code of a fuzz target for the codec. Its input is arbitrary bytes. It also runs as a property test.

use crate::abi::InHeader;
use crate::decode::{DecodeError, Operation, Request, decode};
use crate::encode::Listing;
use crate::negotiation::negotiate;
use braid_base::InodeId;
use braid_wire::FileType;
use bytes::Bytes;
use zerocopy::{FromBytes, IntoBytes};

/// The kernel sends `data`: as it is, and with the right length in its header. What is decoded must be sound.
pub fn fuzz_request(data: &[u8]) {
    let data = Bytes::copy_from_slice(data);
    check(&data, decode(&data));
    let Ok((mut header, body)) = InHeader::read_from_prefix(&data) else { return };
    header.len = data.len() as u32;
    // Most numbers are no opcodes.
    header.opcode %= 64;
    let request = Bytes::from([header.as_bytes(), body].concat());
    check(&request, decode(&request));
}

/// A directory has names of these lengths: there are only so many entries as there is room for.
pub fn fuzz_directory(data: &[u8]) {
    let Some((&room, lengths)) = data.split_first() else { return };
    let room = usize::from(room) * 8;
    let mut listing = Listing::new(room);
    let mut expected = 0;
    for &length in lengths {
        let (most, name) = (listing.most(), vec![b'a'; usize::from(length)]);
        let is_added = listing.push(InodeId(7), u64::from(length), FileType::Regular, &name);
        let bytes = (24 + name.len()).div_ceil(8) * 8;
        assert_eq!(is_added, expected + bytes <= room);
        assert!(!is_added || most > 0 || name.is_empty(), "there was room for an entry");
        expected += if is_added { bytes } else { 0 };
    }
    assert_eq!(listing.finish().len(), expected);
}

fn check(bytes: &Bytes, decoded: Result<Request, DecodeError>) {
    let request = match decoded {
        Ok(request) => request,
        Err(error) => return assert_eq!(error.unique().is_none(), bytes.len() < size_of::<InHeader>()),
    };
    assert_eq!(request.header.len as usize, bytes.len());
    match request.operation {
        Operation::Init { major, minor, flags } => {
            if let Ok(crate::negotiation::Negotiated::Agreed(init)) = negotiate(major, minor, flags) {
                assert!(init.minor <= minor && init.flags & !flags == 0, "nothing is requested that was not offered");
            }
        }
        Operation::Lookup(name)
        | Operation::MakeNode { name, .. }
        | Operation::MakeDirectory { name, .. }
        | Operation::Unlink(name)
        | Operation::RemoveDirectory(name)
        | Operation::Link { name, .. }
        | Operation::Create { name, .. } => assert!(!name.contains(&0)),
        Operation::SymbolicLink { name, target: other } | Operation::Rename { name, new_name: other, .. } => {
            assert!(!name.contains(&0) && !other.contains(&0));
        }
        Operation::Write { data, .. } => assert_eq!(data.len() + 80, bytes.len()),
        Operation::TestLock(request) | Operation::SetLock { lock: request, .. } => {
            assert!(request.lock.start <= request.lock.end);
        }
        _ => {}
    }
}
