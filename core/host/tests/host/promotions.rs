//! Programs of one host that promote locks of ranges which they share.

use crate::stage::*;
use braid_base::BlockRange;
use braid_machine::RangesRequest;
use braid_wire::locking::{LockExtent, LockMode};

#[test]
fn the_first_program_that_promotes_keeps_its_share_and_the_second_gives_it_up() {
    let mut stage = Stage::with_lock_servers(Ordering::ServerLock, 1, Acquisition::Ordered);
    let ask = |stage: &mut Stage, mode, over| {
        let extents = vec![LockExtent { position: 0, range: BlockRange::new(0, 4), mode }];
        let op = stage.ask(RangesRequest::Lock { object: ObjectId(2), extents, over, width: 0, wait: None });
        for (server, command) in stage.lock_commands() {
            if let LockCommand::LockRange { lock_id, extents, .. } = command {
                stage.grant(server, 3, LockReply::GrantedRange { lock_id, extents, waited: false });
            }
        }
        op
    };
    let locked = |stage: &mut Stage, op| match stage.outcome(op) {
        Some(Ok(HostSuccess::RangeLocked { lock, kept })) => Some((lock, kept)),
        other => {
            assert_eq!(other, None);
            None
        }
    };
    let shares = [0, 1].map(|_| {
        let op = ask(&mut stage, LockMode::Shared, None);
        locked(&mut stage, op).expect("it is free").0
    });
    let done = |stage: &mut Stage, request: RangesRequest| {
        let op = stage.ask(request);
        stage.outcome(op) == Some(Ok(HostSuccess::Done))
    };
    assert!(done(&mut stage, RangesRequest::Confirm { lock: shares[1] }), "it is answered at once");
    let first = ask(&mut stage, LockMode::Exclusive, Some(shares[0]));
    assert_eq!(locked(&mut stage, first), None);
    assert!(
        done(&mut stage, RangesRequest::AwaitRecall { lock: shares[1] }),
        "that left no listener, which took the recall"
    );
    let second = ask(&mut stage, LockMode::Exclusive, Some(shares[1]));
    let (lock, kept) = locked(&mut stage, first).expect("the second has given up its share");
    assert!(kept && locked(&mut stage, second).is_none());
    stage.ask(RangesRequest::Unlock { lock });
    assert!(locked(&mut stage, second).is_some_and(|(_, kept)| !kept));
}
