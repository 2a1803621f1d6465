//! What the server of another shard sends in a form that this build can't read: it is answered, so that the transaction ends.

use crate::bench::*;
use braid_base::Encoded;
use braid_commit::{Body, Message, Protocol, TransactionName, Verdict};

const LATER: Bytes = Bytes::from_static(b"of a later build");

fn message(shard: u8, body: Body) -> ShardBody {
    let transaction = TransactionName { shard: ShardId(shard), sequence: 0 };
    let message = Message { protocol: Protocol::OnePhase, transaction, settled: 0, body };
    ShardBody::Commit { message: message.encode() }
}

/// The last message of the commit protocols that the server has sent.
fn last(bench: &Bench) -> Option<Body> {
    let ShardBody::Commit { message } = bench.peers.last()? else { return None };
    Some(<Message>::decode(message.clone()).expect("servers send what they read").body)
}

#[test]
fn a_request_of_a_later_build_is_refused() {
    let mut bench = Bench::of_shards(2);
    bench.hear_peer(message(1, Body::Update { requests: vec![LATER] }));
    let verdicts = vec![Verdict::Refused { reason: FileError::Malformed.encode() }];
    assert_eq!(last(&bench), Some(Body::Updated { verdicts }));
}

#[test]
fn a_verdict_of_a_later_build_ends_the_command() {
    let refused = |reason| Verdict::Refused { reason };
    let verdicts = [
        (Verdict::Accepted { answer: LATER }, FileError::Lost),
        (refused(LATER), FileError::Lost),
        (refused(FileError::NoSpace.encode()), FileError::NoSpace),
    ];
    for (verdict, expected) in verdicts {
        let mut bench = Bench::of_shards(2);
        // Some names of directories belong to the other shard.
        let sequence = (0..99).find_map(|number| {
            let sequence = bench.ask(ONE, creation(&number.to_string(), NewInode::Directory));
            bench.reply(ONE, sequence).is_none().then_some(sequence)
        });
        assert!(matches!(last(&bench), Some(Body::Update { .. })), "{:?}", bench.peers);
        bench.hear_peer(message(0, Body::Updated { verdicts: vec![verdict] }));
        assert_eq!(bench.reply(ONE, sequence.expect("the other shard is asked")), Some(Err(expected)));
        assert_eq!(last(&bench), Some(Body::Acknowledge));
    }
}
