//! Calls to a real etcd, some of whose members stop.

mod members;

use braid_base::Generation;
use braid_description::DeviceEntry;
use braid_etcd::{Registry, Swapped};
use braid_leadership::{CandidateId, Head};
use braid_registrar::{Change, Key, Keys};
use members::{ARRAY, Etcd, LONG, content, wait_until};
use tokio::time::sleep;

/// The keys of the array when nothing has changed.
fn new_keys() -> Keys {
    let mut keys = Keys::new();
    let changes = content().changes().expect("few keys");
    changes.into_iter().for_each(|change| change.make(&mut keys));
    keys
}

fn lease(value: Option<&'static str>) -> Change {
    Change { key: Key::Lease(Generation(1)), value: value.map(Into::into) }
}

fn first(candidates: impl IntoIterator<Item = u16>) -> Head {
    Head::first(candidates.into_iter().map(CandidateId).collect())
}

#[tokio::test]
async fn a_head_is_made_once_and_what_is_written_with_a_swap_is_written_with_it_alone() {
    let etcd = Etcd::start("swaps", 1).await;
    let registry = etcd.registry();
    let head = first([0]);
    let second = Head { seq: 1, leader: Some(CandidateId(0)), ..head.clone() };
    assert_eq!(registry.swap(&head, &second, &[]).await.expect("answered"), Swapped::Differs(None));
    assert!(registry.create(&head, &content()).await.expect("answered"));
    assert!(!registry.create(&second, &content()).await.expect("answered"));
    assert_eq!(
        registry.swap(&second, &head, &[lease(Some("c"))]).await.expect("answered"),
        Swapped::Differs(Some(head.clone()))
    );
    assert_eq!(registry.read_all().await.expect("answered"), (Some(head.clone()), new_keys()));
    let third = Head { seq: 2, ..second.clone() };
    assert_eq!(registry.swap(&head, &second, &[lease(Some("a"))]).await.expect("answered"), Swapped::Done);
    assert_eq!(registry.read_all().await.expect("answered").1["lease/1"], "a");
    assert_eq!(registry.swap(&second, &third, &[lease(None)]).await.expect("answered"), Swapped::Done);
    assert_eq!(registry.head().await.expect("answered"), Some(third.clone()));
    assert_eq!(registry.read_all().await.expect("answered"), (Some(third), new_keys()));
}

/// As many keys as a transaction takes, and large ones.
#[tokio::test]
async fn a_change_that_the_registrar_does_not_refuse_is_one_that_etcd_takes() {
    let etcd = Etcd::start("large", 1).await;
    let registry = etcd.registry();
    let mut large = content();
    let devices = |count| (0..count).map(|id| DeviceEntry { domain: "d".repeat(11_000), ..DeviceEntry::new(id, 1) });
    large.description.devices = devices(124).collect();
    assert!(registry.create(&first(0..1_000), &large).await.expect("etcd takes it"));
    assert_eq!(registry.read_all().await.expect("answered").1.len(), 127);
    large.description.devices = devices(125).collect();
    let refused = registry.create(&first([0]), &large).await.expect_err("too large");
    assert!(refused.to_string().contains("127"), "{refused}");
}

/// A swap is sent to a member that is stopped, and given up. It reaches etcd when others have written.
#[tokio::test]
async fn a_late_swap_changes_nothing() {
    let etcd = Etcd::start("late", 3).await;
    let head = first([0]);
    etcd.registry().create(&head, &content()).await.expect("created");
    let seq = |seq: u64| Head { seq, ..head.clone() };
    for round in 0..3 {
        let member = round as usize;
        let others: Vec<_> = (0..3).filter(|other| *other != member).collect();
        let present = seq(2 * round);
        let late = etcd.registry_of(&[member]);
        wait_until(async || late.head().await.is_ok_and(|found| found == Some(present.clone()))).await;
        etcd.stop(member);
        assert!(late.swap(&present, &seq(2 * round + 1), &[lease(Some("late"))]).await.is_err());
        let others = etcd.registry_of(&others);
        let next = seq(2 * round + 2);
        wait_until(async || match others.swap(&present, &next, &[]).await {
            Ok(Swapped::Done) => true,
            Ok(Swapped::Differs(found)) => found == Some(next.clone()),
            Err(_) => false,
        })
        .await;
        etcd.go_on(member);
        wait_until(async || late.head().await.is_ok()).await;
        assert_eq!(etcd.registry().read_all().await.expect("answered"), (Some(next), new_keys()), "round {round}");
    }
}

/// A connection says nothing any more, as after a break of the network, and new ones work.
#[tokio::test]
async fn a_connection_that_has_fallen_silent_is_given_up() {
    let etcd = Etcd::start("silent", 1).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let (breaks, _) = tokio::sync::broadcast::channel(1);
    let (broken, target) = (breaks.clone(), etcd.ports[0].0);
    tokio::spawn(async move {
        loop {
            let (mut near, _) = listener.accept().await.expect("a connection");
            let mut broken = broken.subscribe();
            tokio::spawn(async move {
                let mut far = tokio::net::TcpStream::connect(("127.0.0.1", target)).await.expect("etcd runs");
                tokio::select! {
                    _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                    _ = broken.recv() => sleep(LONG * 2).await,
                }
            });
        }
    });
    let registry = Registry::new(&[format!("http://127.0.0.1:{port}")], ARRAY).expect("an endpoint");
    registry.head().await.expect("answered");
    breaks.send(()).expect("there is a connection");
    assert!(registry.head().await.is_err());
    wait_until(async || registry.head().await.is_ok()).await;
}
