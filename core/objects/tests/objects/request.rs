//! Single requests: what need be remembered of them, and long lists. Random requests are compared with a model
//! (`random.rs`).

use crate::words::*;
use braid_wire::*;

#[test]
fn only_what_changes_nothing_whatever_it_finds_need_not_be_remembered() {
    let mut objects = Objects::with_one();
    let mut only_asks = |command: ObjectCommand| {
        let request = ObjectRequest { commands: vec![command] };
        evaluate(&request, &mut objects.map).expect("all of it is here").only_asks
    };
    for asks in [
        Action::Nothing,
        Action::Flush,
        Action::Stat,
        read(0, 1),
        Action::ListAttributes { after: None, page: None, most: 1 },
        Action::List { after: ObjectId(0), most: 1 },
    ] {
        assert!(only_asks(command(asks.clone())), "{asks:?}");
        if !matches!(asks, Action::List { .. }) {
            assert!(only_asks(command(asks.clone()).get(NOTE)));
            assert!(!only_asks(command(asks).set(NOTE, b"")));
        }
    }
    for acts in [
        Action::Create,
        Action::Remove,
        write(0, b""),
        Action::Append { data: Bytes::new() },
        Action::Truncate { length: 0 },
        swap_empty(LOCK, b"not this", b"x"),
        add(COUNT, 0),
    ] {
        assert!(!only_asks(command(acts.clone())), "{acts:?}");
        // Nor if it fails, because a late copy might succeed.
        assert!(!only_asks(command(acts.clone()).of(99)));
        assert!(!only_asks(command(acts).when(When::IfNotSwapped)));
    }
    // Requests that no device ever accepts.
    assert!(only_asks(command(Action::Create).of(u64::MAX)));
}

#[test]
fn one_list_has_1024_attributes_at_most() {
    let mut objects = Objects::with_one();
    for page in 0..17 {
        let sets =
            (0..64).fold(command(Action::Nothing), |sets, number| sets.set(AttributeName::new(page, number), b"x"));
        objects.does([sets]);
    }
    let list = objects.acts(Action::ListAttributes { after: None, page: None, most: u32::MAX });
    let ActionResult::Attributes { found, more } = list else { panic!("a list") };
    assert_eq!((found.len(), more), (1024, true));
    let after = found.last().map(|(name, _)| *name);
    let list = objects.acts(Action::ListAttributes { after, page: None, most: u32::MAX });
    let ActionResult::Attributes { found, more } = list else { panic!("a list") };
    assert_eq!((found.len(), more), (64, false));
}
