//! A front end that keeps bytes of files: the data lock is given back when it has dropped them.

use crate::bench::*;

const ONE: Generation = Generation(1);
const TWO: Generation = Generation(2);

/// A file of four bytes that host two keeps, the handles of both hosts, and the request of host two that awaits revocations.
fn kept(bench: &mut Bench) -> (InodeId, FileHandle, FileHandle, OpId) {
    let inode = bench.create(ONE, "a");
    let (one, two) = (bench.open(ONE, inode), bench.open(TWO, inode));
    bench.write(ONE, one, 0, b"aaaa");
    let revocation = bench.ask(TWO, FilesRequest::AwaitRevocation);
    assert_eq!(read_pages(bench, two), b"aaaa");
    (inode, one, two, revocation)
}

fn read_pages(bench: &mut Bench, handle: FileHandle) -> Vec<u8> {
    match bench.call(TWO, FilesRequest::ReadPages { handle, offset: 0, length: 4096 }) {
        Ok(FilesSuccess::Data(data)) => data.concat(),
        other => panic!("{other:?}"),
    }
}

fn write(bench: &mut Bench, handle: FileHandle, offset: u64) -> OpId {
    bench.ask(ONE, FilesRequest::Write { handle, offset, data: Bytes::from_static(b"bbbb") })
}

fn revoked(inode: InodeId) -> HostSuccess {
    HostSuccess::Files(FilesSuccess::Revoked(vec![inode]))
}

#[test]
fn a_lock_is_given_back_when_what_was_kept_is_dropped() {
    let mut bench = Bench::new(21, 2, 8192, GOOD);
    let (inode, one, two, revocation) = kept(&mut bench);
    let written = write(&mut bench, one, 0);
    assert_eq!(bench.finish(revocation), Ok(revoked(inode)));
    bench.pass(Duration::from_millis(100));
    assert!(!bench.ended.contains_key(&written), "it waits for the other host's cache");
    assert_eq!(bench.call(TWO, FilesRequest::Dropped { inode, follows: None }), Ok(FilesSuccess::Done));
    assert!(bench.finish(written).is_ok());
    assert_eq!(read_pages(&mut bench, two), b"bbbb");
    bench.unmount_all();
}

#[test]
fn a_read_that_the_dropping_waits_for_is_answered_and_dropped_as_well() {
    let mut bench = Bench::new(22, 2, 8192, GOOD);
    let (inode, one, two, revocation) = kept(&mut bench);
    let written = write(&mut bench, one, 0);
    bench.finish(revocation).expect("it is revoked");
    assert_eq!(read_pages(&mut bench, two), b"aaaa", "under the lock that is still held");
    let again = bench.ask(TWO, FilesRequest::AwaitRevocation);
    let dropped = FilesRequest::Dropped { inode, follows: None };
    assert_eq!(bench.call(TWO, dropped.clone()), Ok(FilesSuccess::Done));
    assert_eq!(bench.finish(again), Ok(revoked(inode)), "what was read meanwhile");
    assert!(!bench.ended.contains_key(&written));
    assert_eq!(bench.call(TWO, dropped), Ok(FilesSuccess::Done));
    assert!(bench.finish(written).is_ok());
    bench.unmount_all();
}

#[test]
fn a_file_becomes_longer_when_those_who_follow_its_size_know_it() {
    let mut bench = Bench::new(23, 2, 8192, GOOD);
    let (inode, one, two, revocation) = kept(&mut bench);
    let written = write(&mut bench, one, 6000);
    bench.finish(revocation).expect("it is revoked");
    let again = bench.ask(TWO, FilesRequest::AwaitRevocation);
    let followed = bench.call(TWO, FilesRequest::Dropped { inode, follows: Some(two) });
    assert_eq!(followed, Ok(FilesSuccess::Tail { size: 6004, last: Bytes::from_static(b"b") }));
    // It keeps the size, and tells its kernel.
    bench.finish(again).expect("the writer asks whether it is known");
    bench.pass(Duration::from_millis(100));
    assert!(!bench.ended.contains_key(&written), "the size is not known to all");
    assert_eq!(bench.call(TWO, FilesRequest::Dropped { inode, follows: None }), Ok(FilesSuccess::Done));
    assert!(bench.finish(written).is_ok());
    bench.unmount_all();
}

#[test]
fn a_front_end_that_has_ended_keeps_nobody_waiting() {
    let mut bench = Bench::new(24, 2, 8192, GOOD);
    let (_, one, _, revocation) = kept(&mut bench);
    let written = write(&mut bench, one, 0);
    bench.finish(revocation).expect("it is revoked");
    let ended = bench.ask_host(TWO, ArrayRequest::Disconnect);
    assert_eq!(bench.finish(ended), Ok(HostSuccess::Done));
    assert!(bench.finish(written).is_ok());
}

#[test]
fn a_host_that_hears_nothing_has_all_dropped_before_it_can_be_fenced_and_gives_nothing_until_it_hears() {
    let mut bench = Bench::new(25, 2, 8192, GOOD);
    let (inode, _, two, revocation) = kept(&mut bench);
    bench.pass(Duration::from_secs(20));
    assert!(!bench.ended.contains_key(&revocation), "its locks are confirmed again and again");
    bench.cut = Some(TWO);
    let cut = bench.now.time;
    assert_eq!(bench.finish(revocation), Ok(revoked(inode)));
    let lasted = bench.now.time.since(cut);
    assert!(lasted <= Settings::default().host_lease * 3 / 4, "{lasted:?}");
    assert_eq!(bench.call(TWO, FilesRequest::Dropped { inode, follows: None }), Ok(FilesSuccess::Done));
    let read = bench.ask(TWO, FilesRequest::ReadPages { handle: two, offset: 0, length: 4096 });
    bench.pass(Duration::from_millis(500));
    assert!(!bench.ended.contains_key(&read), "it would be kept");
    bench.cut = None;
    assert!(bench.finish(read).is_ok());
    bench.unmount_all();
}
