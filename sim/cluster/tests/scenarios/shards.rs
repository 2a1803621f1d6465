//! Scenarios of a file system with several shards: operations that concern several metadata servers, while these servers fail.

use crate::play::*;
use crate::story::*;
use braid_commit::{Body, Message as CommitMessage, TransactionName};
use braid_metadata::Grouping;
use braid_namespace::Placement;
use braid_wire::{AttributeChange, FileAttributes};

/// Acts with each protocol, and checks all.
fn with_each_protocol(count: u8, act: impl Fn(&mut Play, Protocol)) {
    for protocol in Protocol::ALL {
        let mut play = play(count, protocol);
        act(&mut play, protocol);
        play.check();
    }
}

impl Play {
    /// How many transactions the server of a shard has begun.
    fn transactions(&self, shard: usize) -> u64 {
        self.server(shard).transactions()
    }

    /// From now on no server hears that a transaction is committed.
    fn lose_commits(&mut self) {
        let is_commit = |message: &Message| commit_message(message).is_some_and(|(_, body)| body == Body::Commit);
        self.array.world.network.drop_if(move |_, _, message| is_commit(message));
    }
}

/// The transaction of a message of the commit protocols, and what it says.
fn commit_message(message: &Message) -> Option<(TransactionName, Body)> {
    let Message::Shard(braid_wire::ShardMessage { body: ShardBody::Commit { message }, .. }) = message else {
        return None;
    };
    CommitMessage::decode(message.clone()).ok().map(|message| (message.transaction, message.body))
}

#[test]
fn names_and_inodes_in_different_shards_are_made_and_removed_together() {
    with_each_protocol(2, |play, protocol| {
        let x = play.made(ROOT, "x", NewInode::Regular);
        assert_eq!(x.shard(), ShardId(1), "{protocol}");
        assert_eq!(play.lookup(ROOT, "x").map(|found| (found.inode, found.links)), Ok((x, 1)));
        assert_eq!(play.run(create(ROOT, "x", NewInode::Regular)), Err(FileError::Exists));
        assert!(matches!(play.run(link(x, ROOT, "y")), Ok(FileResult::Attributes(FileAttributes { links: 2, .. }))));
        let d = play.made(ROOT, "d", NewInode::Directory);
        let z = play.made(d, "z", NewInode::Regular);
        assert_eq!((d.shard(), z.shard()), (ShardId(1), ShardId(0)));
        assert_eq!(play.run(remove_directory(ROOT, "d")), Err(FileError::NotEmpty));
        for (parent, removed, links) in [(ROOT, "x", 1), (ROOT, "y", 0), (d, "z", 0)] {
            match play.run(unlink(parent, removed)) {
                Ok(FileResult::Removed(attributes)) => assert_eq!(attributes.links, links, "{removed}"),
                other => panic!("{removed} was not removed: {other:?}"),
            }
            assert_eq!(play.lookup(parent, removed), Err(FileError::NoSuchName));
        }
        assert!(matches!(play.run(remove_directory(ROOT, "d")), Ok(FileResult::Removed(_))));
    });
}

#[test]
fn names_move_between_shards_and_replace_others() {
    with_each_protocol(3, |play, protocol| {
        let a = play.made(ROOT, "a", NewInode::Directory);
        let b = play.made(a, "b", NewInode::Directory);
        let c = play.made(ROOT, "c", NewInode::Directory);
        let x = play.made(b, "x", NewInode::Regular);
        let y = play.made(c, "y", NewInode::Regular);
        match play.run(rename((b, "x"), (c, "y"))) {
            Ok(FileResult::Renamed { moved, replaced: Some(replaced) }) => {
                assert_eq!((moved.inode, moved.links, replaced.inode, replaced.links), (x, 1, y, 0), "{protocol}");
            }
            other => panic!("{protocol}: it was not moved: {other:?}"),
        }
        assert_eq!(play.lookup(b, "x"), Err(FileError::NoSuchName));
        assert_eq!(play.lookup(c, "y").map(|found| found.inode), Ok(x));
        assert_eq!(play.run(rename((ROOT, "a"), (b, "a"))), Err(FileError::IntoItself));
        assert!(matches!(play.run(rename((a, "b"), (c, "b"))), Ok(FileResult::Renamed { replaced: None, .. })));
        assert_eq!(play.lookup(c, "b").map(|found| (found.inode, found.parent)), Ok((b, Some(c))));
        assert!(matches!(play.run(rename((ROOT, "a"), (b, "a"))), Ok(FileResult::Renamed { .. })));
        assert_eq!(play.run(rename((ROOT, "c"), (a, "c"))), Err(FileError::IntoItself));
    });
}

#[test]
fn an_inode_in_another_shard_inherits_from_its_directory() {
    let mut play = play(2, Protocol::OnePhase);
    let change = AttributeChange { mode: Some(0o2755), gid: Some(77), ..AttributeChange::default() };
    assert!(play.run(FileCommand::SetAttributes { inode: ROOT, change }).is_ok());
    for (node, mode) in [(NewInode::Regular, 0o644), (NewInode::Directory, 0o2644)] {
        match play.run(create(ROOT, &format!("{mode}"), node)) {
            Ok(FileResult::Created { attributes, .. }) => {
                assert_eq!((attributes.inode.shard(), attributes.mode, attributes.owner.gid), (ShardId(1), mode, 77));
            }
            other => panic!("it is not made: {other:?}"),
        }
    }
}

#[test]
fn a_directory_does_not_replace_the_one_that_contains_it() {
    with_each_protocol(2, |play, protocol| {
        let d = play.made(ROOT, "d", NewInode::Directory);
        let e = play.made(d, "e", NewInode::Directory);
        play.made(d, "x", NewInode::Regular);
        assert_eq!(play.run(rename((d, "x"), (ROOT, "d"))), Err(FileError::IsADirectory), "{protocol}");
        assert!(matches!(play.run(unlink(d, "x")), Ok(FileResult::Removed(_))));
        // Without its old name, the directory to be replaced would be empty.
        assert_eq!(play.run(rename((d, "e"), (ROOT, "d"))), Err(FileError::NotEmpty), "{protocol}");
        assert_eq!(play.lookup(d, "e").map(|found| found.inode), Ok(e));
    });
}

#[test]
fn directories_that_are_moved_into_each_other_at_once_make_no_cycle() {
    with_each_protocol(3, |play, protocol| {
        let other = play.another();
        // Directories alternate between shards, so that every pair is in one shard, or in two.
        let mut parent = ROOT;
        let chain: Vec<InodeId> = (0..4)
            .map(|level| {
                parent = play.made(parent, &format!("{level}"), NewInode::Directory);
                parent
            })
            .collect();
        let parents = [ROOT, chain[0], chain[1], chain[2]];
        for (one, two) in [(1, 2), (2, 3), (1, 3)] {
            // To the root, so that neither is below the other one.
            for moved in [one, two] {
                play.run(rename((parents[moved], &format!("{moved}")), (ROOT, &format!("r{moved}"))))
                    .expect("it moves");
            }
            let into = |moved: usize, to: usize| rename((ROOT, &format!("r{moved}")), (chain[to], "in"));
            let first = play.begin(into(one, two));
            let second = play.begin_at(other, into(two, one));
            let ends = [first, second].map(|op| play.end(op));
            let moved = ends.iter().filter(|end| end.is_ok()).count();
            assert_eq!(moved, 1, "{protocol}: {ends:?}");
            assert!(ends.contains(&Err(FileError::IntoItself)), "{protocol}: {ends:?}");
            // Back to where they were.
            let (inside, outside) = if ends[0].is_ok() { (one, two) } else { (two, one) };
            play.run(rename((chain[outside], "in"), (ROOT, &format!("r{inside}")))).expect("it moves");
            for moved in [one, two] {
                play.run(rename((ROOT, &format!("r{moved}")), (parents[moved], &format!("{moved}"))))
                    .expect("it moves");
            }
        }
        play.unmount(other);
    });
}

#[test]
fn names_that_change_places_between_two_servers_do_not_wait_for_each_other() {
    with_each_protocol(2, |play, protocol| {
        let other = play.another();
        let d = play.made(ROOT, "d", NewInode::Directory);
        for round in 0..8 {
            play.made(ROOT, "x", NewInode::Regular);
            play.made(d, "y", NewInode::Regular);
            let first = play.begin(rename((ROOT, "x"), (d, "y")));
            let second = play.begin_at(other, rename((d, "y"), (ROOT, "x")));
            for op in [first, second] {
                let end = play.end(op);
                assert!(matches!(end, Ok(_) | Err(FileError::NoSuchName)), "{protocol}, {round}: {end:?}");
            }
            let left = [play.lookup(ROOT, "x"), play.lookup(d, "y")];
            assert_eq!(left.iter().filter(|found| found.is_ok()).count(), 1, "{protocol}, {round}: {left:?}");
            let (parent, name) = if left[0].is_ok() { (ROOT, "x") } else { (d, "y") };
            play.run(unlink(parent, name)).expect("it is removed");
        }
        play.unmount(other);
    });
}

#[test]
fn a_command_survives_the_death_of_either_server_at_any_moment() {
    with_each_protocol(2, |play, protocol| {
        for victim in [0, 1] {
            for step in 0..12_u64 {
                let made = format!("{victim}-{step}");
                let op = play.begin(create(ROOT, &made, NewInode::Regular));
                play.array.run_for(Duration::from_micros(250 * step));
                play.crash(victim);
                play.array.run_for(Duration::from_millis(20));
                play.start(victim);
                play.end_created(op, protocol);
                let found = play.lookup(ROOT, &made).map(|found| found.links);
                assert_eq!(found, Ok(1), "{protocol}, {made}");
                assert_eq!(play.run(create(ROOT, &made, NewInode::Regular)), Err(FileError::Exists));
            }
        }
    });
}

#[test]
fn no_host_is_silent_to_a_server_that_does_not_serve_yet() {
    let mut options = options(128);
    options.settings.host_lease = Duration::from_millis(550);
    let (protocol, grouping) = (Protocol::OnePhase, Grouping::Log);
    let shards = ShardOptions { count: 2, placement: Placement::Spread, protocol, grouping };
    let mut play = play_in(options, shards);
    play.made(ROOT, "x", NewInode::Regular);
    play.crash(0);
    play.start(0);
    let heir = play.array.node(play.servers[0]);
    let is_late = move |from, to, _: &Message| to == heir && matches!(from, NodeId::Device(_));
    play.array.world.network.delay_if(Duration::from_millis(250), is_late);
    let op = play.begin(create(ROOT, "y", NewInode::Regular));
    play.end_created(op, "the heir does not serve yet");
    play.array.world.network.heal();
    play.check();
}

#[test]
fn servers_that_die_together_redo_what_each_had_asked_of_the_other() {
    with_each_protocol(2, |play, protocol| {
        let d = play.made(ROOT, "d", NewInode::Directory);
        for step in 0..12_u64 {
            let ops = [ROOT, d].map(|parent| play.begin(create(parent, &format!("{step}"), NewInode::Regular)));
            play.array.run_for(Duration::from_micros(250 * step));
            [0, 1].into_iter().for_each(|shard| play.crash(shard));
            [0, 1].into_iter().for_each(|shard| play.start(shard));
            for op in ops {
                play.end_created(op, protocol);
            }
        }
    });
}

#[test]
fn a_silent_server_delays_only_what_needs_it() {
    let mut play = play(2, Protocol::OnePhase);
    play.made(ROOT, "x", NewInode::Regular);
    let (first, second) = (play.array.node(play.servers[0]), play.array.node(play.servers[1]));
    cut(&mut play.array, first, second);
    let waits = play.begin(create(ROOT, "y", NewInode::Regular));
    let list = FileCommand::ReadDirectory { inode: ROOT, after: 0, most: 10 };
    assert_eq!(play.lookup(ROOT, "nothing"), Err(FileError::NoSuchName));
    let listed = play.begin(list);
    play.array.run_for(Duration::from_secs(3));
    play.array.world.network.heal();
    play.end_created(waits, "a server was silent");
    match play.end(listed) {
        Ok(FileResult::Entries { entries, .. }) => assert!((1..=2).contains(&entries.len()), "{entries:?}"),
        other => panic!("not a list: {other:?}"),
    }
    play.check();
}

#[test]
fn a_late_request_of_a_transaction_that_was_aborted_is_not_done() {
    for protocol in [Protocol::PresumeNothing, Protocol::PresumeCommit, Protocol::EarlyPrepare] {
        let mut play = play(2, protocol);
        let (first, second) = (play.array.node(play.servers[0]), play.array.node(play.servers[1]));
        let mut aborted = None;
        let is_confirmed = Rc::new(Cell::new(false));
        let confirmed = is_confirmed.clone();
        play.array.world.network.set_rule(move |from, to, message| {
            let Some((name, body)) = commit_message(message) else { return Verdict::Pass };
            let is_of_first = *aborted.get_or_insert(name) == name;
            if (from, to) == (second, first) {
                confirmed.set(confirmed.get() || is_of_first && body == Body::Acknowledge);
                Verdict::Pass
            } else if is_confirmed.get() {
                // Otherwise a later message would say that the transaction is over.
                Verdict::Drop
            } else if is_of_first && matches!(body, Body::Update { .. }) {
                Verdict::Delay(Duration::from_secs(20))
            } else {
                Verdict::Pass
            }
        });
        let op = play.begin(create(ROOT, "x", NewInode::Regular));
        play.array.run_for(Duration::from_secs(30));
        play.array.world.network.heal();
        play.end_created(op, protocol);
        play.array.run_for(Duration::from_secs(30));
        play.check();
    }
}

#[test]
fn undecided_names_stay_locked_when_their_coordinator_has_restarted() {
    with_each_protocol(2, |play, protocol| {
        let other = play.another();
        let worker = play.array.node(play.servers[1]);
        play.array.world.network.drop_if(move |from, _, message| from == worker && commit_message(message).is_some());
        let op = play.begin(create(ROOT, "x", NewInode::Regular));
        play.array.run_for(Duration::from_millis(100));
        play.crash(0);
        play.start(0);
        let again = play.begin_at(other, create(ROOT, "x", NewInode::Regular));
        // Longer than a lease, and shorter than any protocol's patience.
        play.array.run_for(Duration::from_secs(8));
        play.serves(0);
        play.array.world.network.heal();
        let ends = [play.end(op), play.end(again)];
        let made = ends.iter().filter(|end| is_created(end)).count();
        assert_eq!(made, 1, "{protocol}: {ends:?}");
        assert!(ends.contains(&Err(FileError::Exists)), "{protocol}: {ends:?}");
        play.unmount(other);
    });
}

/// The coordinator gives the number of such a transaction to its next one, which may have another worker.
#[test]
fn a_transaction_whose_beginning_is_not_durable_is_unknown_to_its_worker() {
    with_each_protocol(3, |play, _| {
        let other = play.another();
        // Names whose inodes are in the second and the third shard. Now the first server has in memory what it needs.
        let names = ["a", "b", "c", "d", "e", "f", "g", "h"]
            .map(|name| (play.made(ROOT, name, NewInode::Regular).shard(), name));
        for (_, name) in names {
            play.run(unlink(ROOT, name)).expect("it is there");
        }
        let name_in = |shard| names.iter().find(|(of, _)| *of == ShardId(shard)).expect("one of eight").1;
        play.array.run_for(Duration::from_secs(2));
        // Nothing that the coordinator writes from now on becomes durable.
        let coordinator = play.array.node(play.servers[0]);
        play.array.world.network.drop_if(move |from, to, _| from == coordinator && matches!(to, NodeId::Device(_)));
        play.begin_at(other, create(ROOT, name_in(1), NewInode::Regular));
        play.array.run_for(Duration::from_millis(200));
        // The host does not try again.
        play.array.crash(play.array.node(other));
        play.crash(0);
        play.array.world.network.heal();
        play.start(0);
        play.made(ROOT, name_in(2), NewInode::Regular);
        play.array.run_for(Duration::from_secs(20));
    });
}

#[test]
fn a_late_request_that_was_refused_is_not_done() {
    let mut play = play(2, Protocol::OnePhase);
    let directory = play.made(ROOT, "d", NewInode::Directory);
    play.made(directory, "x", NewInode::Regular);
    let mut late = 0;
    play.array.world.network.set_rule(move |_, _, message| {
        match commit_message(message).map(|(_, body)| body) {
            Some(Body::Update { .. }) => late += 1,
            // It would say that the transaction is over.
            Some(Body::Acknowledge) => return Verdict::Drop,
            _ => return Verdict::Pass,
        }
        if late == 1 { Verdict::Delay(Duration::from_secs(5)) } else { Verdict::Pass }
    });
    assert_eq!(play.run(remove_directory(ROOT, "d")), Err(FileError::NotEmpty), "it was asked again");
    play.run(unlink(directory, "x")).expect("it is there");
    // Now the directory could be removed.
    play.array.run_for(Duration::from_secs(6));
    assert_eq!(play.lookup(ROOT, "d").map(|found| (found.inode, found.links)), Ok((directory, 2)));
    play.check();
}

#[test]
fn entries_of_a_directory_are_not_reported_before_it_is_created() {
    for protocol in [Protocol::PresumeCommit, Protocol::EarlyPrepare] {
        let mut play = play(2, protocol);
        let moved = play.made(ROOT, "moved", NewInode::Regular);
        // The coordinator answers when it has committed. The worker has not heard yet that the directory exists.
        play.lose_commits();
        let directory = play.made(ROOT, "d", NewInode::Directory);
        assert_eq!(directory.shard(), ShardId(1));
        let lookup = lookup(directory, "x");
        let ops = [lookup, rename((ROOT, "moved"), (directory, "y"))].map(|command| play.begin(command));
        play.array.run_for(Duration::from_millis(500));
        play.array.world.network.heal();
        let [looked_up, renamed] = ops.map(|op| play.end(op));
        assert_eq!(looked_up, Err(FileError::NoSuchName), "{protocol}");
        assert!(renamed.is_ok(), "{protocol}: {renamed:?}");
        assert_eq!(play.lookup(directory, "y").map(|found| found.inode), Ok(moved), "{protocol}");
        play.check();
    }
}

/// Delays the questions of one server for others.
fn delay_questions(play: &mut Play, of: usize, by: Duration) {
    let sender = play.array.node(play.servers[of]);
    play.array.world.network.delay_if(by, move |from, _, message| {
        from == sender && matches!(message, Message::Shard(ShardMessage { body: ShardBody::Read { .. }, .. }))
    });
}

#[test]
fn commands_of_two_servers_that_wait_for_each_other_go_on_after_a_second() {
    let mut play = play(2, Protocol::OnePhase);
    let d = play.made(ROOT, "d", NewInode::Directory);
    play.made(d, "x", NewInode::Regular);
    assert_eq!(d.shard(), ShardId(1));
    delay_questions(&mut play, 1, Duration::from_millis(100));
    // It has a name in d, and asks for one in the root.
    let renamed = play.begin(rename((d, "x"), (ROOT, "y")));
    play.array.run_for(Duration::from_millis(20));
    // It has a name in the root, and asks for d.
    let looked_up = play.begin(lookup(ROOT, "d"));
    play.array.run_for(Duration::from_millis(20));
    let changed = play.begin(set_mode(ROOT, 0o700));
    play.array.run_for(Duration::from_millis(2_500));
    for op in [renamed, looked_up, changed] {
        assert!(play.array.requests.is_answered(op), "{op:?} still waits");
        play.end(op).expect("one of them was planned anew");
    }
    play.check();
}

#[test]
fn a_command_that_asks_a_silent_server_keeps_its_locks_for_a_second() {
    let mut play = play(2, Protocol::OnePhase);
    let d = play.made(ROOT, "d", NewInode::Directory);
    delay_questions(&mut play, 0, Duration::from_secs(20));
    let looked_up = play.begin(lookup(ROOT, "d"));
    play.array.run_for(Duration::from_millis(20));
    let changed = play.begin(set_mode(ROOT, 0o700));
    play.array.run_for(Duration::from_millis(1_500));
    assert!(play.array.requests.is_answered(changed) && !play.array.requests.is_answered(looked_up));
    play.end(changed).expect("the directory is here");
    play.array.world.network.heal();
    assert!(matches!(play.end(looked_up), Ok(FileResult::Attributes(found)) if found.inode == d));
    play.check();
}

#[test]
fn a_rename_finds_the_replaced_inode_gone_and_is_planned_anew() {
    let mut play = play(2, Protocol::OnePhase);
    let d = play.made(ROOT, "d", NewInode::Directory);
    let other = play.another();
    for step in 0..24 {
        play.made(d, "x", NewInode::Regular);
        // Its inode is where d is.
        play.made(ROOT, "y", NewInode::Regular);
        let renamed = play.begin(rename((d, "x"), (ROOT, "y")));
        play.array.run_for(Duration::from_micros(step * 100));
        let removed = play.begin_at(other, unlink(ROOT, "y"));
        let ends = (play.end(renamed), play.end(removed));
        assert!(matches!(ends, (Ok(_), Ok(_) | Err(FileError::NoSuchName))), "{step}: {ends:?}");
        let _ = play.run(unlink(ROOT, "y"));
    }
    play.check_without(other);
}

#[test]
fn a_lookup_waits_for_what_another_server_has_committed() {
    with_each_protocol(2, |play, protocol| {
        let d = play.made(ROOT, "d", NewInode::Directory);
        let x = play.made(ROOT, "x", NewInode::Regular);
        assert_eq!((d.shard(), x.shard()), (ShardId(1), ShardId(1)));
        play.run(link(x, d, "here")).expect("it is a file");
        play.lose_commits();
        let linked = play.begin(link(x, ROOT, "there"));
        play.array.run_for(Duration::from_millis(200));
        let is_linked = play.array.requests.is_answered(linked);
        let looked_up = play.begin(lookup(d, "here"));
        play.array.run_for(Duration::from_millis(200));
        play.array.world.network.heal();
        play.end(linked).expect("it is a file");
        match play.end(looked_up) {
            Ok(FileResult::Attributes(found)) => assert!(!is_linked || found.links == 3, "{protocol}: {found:?}"),
            other => panic!("{protocol}: {other:?}"),
        }
    });
}

#[test]
fn messages_between_servers_outlive_their_sender() {
    let mut play = play(2, Protocol::OnePhase);
    let x = play.made(ROOT, "x", NewInode::Regular);
    let mode_of = |play: &mut Play| play.lookup(ROOT, "x").map(|found| found.mode);
    let mut seen = 0;
    for step in 0..64_u16 {
        let other = play.another();
        play.array.run_for(Duration::from_secs(1));
        play.begin_at(other, set_mode(x, 0o600 + step));
        play.array.run_for(Duration::from_micros(u64::from(step) * 10));
        let before = mode_of(&mut play);
        play.array.crash(play.array.node(other));
        play.crash(1);
        play.start(1);
        let after = mode_of(&mut play);
        if before == Ok(0o600 + step) {
            seen += 1;
            assert_eq!(after, before, "{step}");
        }
    }
    assert!(seen > 0, "no change was seen");
}

/// Runs commands at three hosts, as many at a time as there are. Returns the names with the links of their inodes, and how many transactions
/// there were.
fn names_after_many_commands(protocol: Protocol, grouping: Grouping) -> (BTreeMap<String, u32>, u64) {
    let mut play = play_with(2, protocol, grouping);
    let hosts = [play.host, play.another(), play.another()];
    let d = play.made(ROOT, "d", NewInode::Directory);
    let before = play.transactions(0);
    let create = |n: usize| create(ROOT, &format!("a{n}"), NewInode::Regular);
    let all_done = |results: &[Result<FileResult, FileError>]| {
        assert!(results.iter().all(Result::is_ok), "{protocol}, {grouping}: {results:?}");
    };
    all_done(&play.run_together(&hosts, (0..24).map(create)));
    let again = play.run_together(&hosts, (0..24).map(create));
    assert!(again.iter().all(|result| *result == Err(FileError::Exists)), "{protocol}, {grouping}: {again:?}");
    // One inode changes with each of these.
    let inode = play.lookup(ROOT, "a0").expect("it was made").inode;
    let linked = play.run_together(&hosts, (0..24).map(|n| link(inode, ROOT, &format!("b{n}"))));
    let links_of = |result: &Result<FileResult, FileError>| match result {
        Ok(FileResult::Attributes(attributes)) => attributes.links,
        other => panic!("{protocol}, {grouping}: not the answer to a link: {other:?}"),
    };
    let links: BTreeSet<u32> = linked.iter().map(links_of).collect();
    assert_eq!(links, (2..26).collect(), "{protocol}, {grouping}: each answer shows those before it");
    all_done(&play.run_together(&hosts, (0..20).map(|n| unlink(ROOT, &format!("b{n}")))));
    let moved = |n: usize| rename((ROOT, &format!("a{n}")), if n.is_multiple_of(2) { (ROOT, "c") } else { (d, "c") });
    all_done(&play.run_together(&hosts, (12..24).map(moved)));
    let transactions = play.transactions(0) - before;
    let mut names = BTreeMap::new();
    for (parent, folder) in [(ROOT, ""), (d, "d/")] {
        for name in ["a", "b"].iter().flat_map(|first| (0..24).map(move |n| format!("{first}{n}"))).chain(["c".into()])
        {
            if let Ok(found) = play.lookup(parent, &name) {
                names.insert(format!("{folder}{name}"), found.links);
            }
        }
    }
    for host in &hosts[1..] {
        play.unmount(*host);
    }
    play.check();
    (names, transactions)
}

#[test]
fn the_same_commands_lead_to_the_same_names_however_they_are_grouped() {
    let mut expected: BTreeMap<String, u32> = (1..12).map(|n| (format!("a{n}"), 1)).collect();
    expected.extend((20..24).map(|n| (format!("b{n}"), 5)));
    expected.extend([("a0".into(), 5), ("c".into(), 1), ("d/c".into(), 1)]);
    for protocol in Protocol::ALL {
        let runs = Grouping::ALL.map(|grouping| names_after_many_commands(protocol, grouping));
        for (names, _) in &runs {
            assert_eq!(*names, expected, "{protocol}");
        }
        let [none, log, operations] = runs.map(|(_, transactions)| transactions);
        assert!(operations * 2 < none.min(log), "{protocol}: {operations} of {none} or {log}");
    }
}

#[test]
fn every_answer_to_commands_that_were_committed_together_is_kept() {
    for protocol in Protocol::ALL {
        let mut play = play_with(2, protocol, Grouping::Operations);
        let hosts = [play.host, play.another()];
        play.array.world.network.drop_if(|_, _, message| matches!(message, Message::FileAnswer(_)));
        let commands = (0..12).map(|n| create(ROOT, &format!("{n}"), NewInode::Regular));
        let ops = play.begin_together(&hosts, commands);
        play.array.run_for(Duration::from_millis(200));
        assert!(play.transactions(0) < 12, "{protocol}: some were committed together");
        play.crash(0);
        play.array.world.network.heal();
        play.start(0);
        ops.into_iter().for_each(|op| play.end_created(op, protocol));
        play.check_without(hosts[1]);
    }
}
