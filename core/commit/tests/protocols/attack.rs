//! Random runs of larger worlds: three servers that coordinate for each other, operations that wait for each other's locks, groups,
//! refusals, clients that ask again, lost, late and doubled messages, and crashes at any write. A seed determines a run; a failure names it.

use crate::world::*;
use braid_base::Rng;

const SERVERS: u8 = 3;
const RUNS: u64 = 400;
const STEPS: u64 = 400;
/// Late messages are chosen from that many.
const LATE_MAX: u64 = 1000;

/// Operations of clients, in groups that are asked for together.
fn operations(rng: &mut Rng) -> (Vec<ClientOperation>, Vec<Vec<u8>>) {
    let (mut operations, mut groups) = (Vec::new(), Vec::new());
    for _ in 0..rng.between(2, 8) {
        let coordinator = rng.below(u64::from(SERVERS)) as u8;
        let mut workers: Vec<ShardId> = (0..SERVERS).filter(|shard| *shard != coordinator).map(ShardId).collect();
        if rng.chance(3, 4) {
            workers.remove(rng.below(2) as usize);
        }
        let count = if workers.len() == 1 { rng.between(1, 3) } else { 1 };
        let mut group = Vec::new();
        for _ in 0..count {
            let number = operations.len() as u8;
            let refusers = workers.iter().copied().filter(|_| rng.chance(1, 6)).collect();
            // Operations of different coordinators may wait for each other's locks.
            let object = rng.below(4) as u8;
            let workers = workers.clone();
            operations.push(ClientOperation { number, coordinator: ShardId(coordinator), workers, object, refusers });
            group.push(number);
        }
        groups.push(group);
    }
    (operations, groups)
}

fn run(seed: u64, protocol: Option<Protocol>) -> (usize, usize) {
    let mut rng = Rng::new(seed);
    let (operations, groups) = operations(&mut rng);
    let mut world = World::new(Protocol::OnePhase, SERVERS, operations);
    let crashes_in = rng.between(10, 200);
    let mut late: Vec<(ShardId, ShardId, Bytes)> = Vec::new();
    for _ in 0..STEPS {
        // A file system may change its protocol at any time.
        world.protocol = protocol.unwrap_or(Protocol::ALL[rng.below(4) as usize]);
        let shard = ShardId(rng.below(u64::from(SERVERS)) as u8);
        match rng.below(20) {
            0 | 1 => world.ask(&groups[rng.below(groups.len() as u64) as usize]),
            2 => world.wake(shard),
            3 if !late.is_empty() => {
                let message = late[rng.below(late.len() as u64) as usize].clone();
                world.deliver(&message);
            }
            4..=8 => world.flush(shard),
            9..=11 => {
                let name = world.servers[&shard].waiting.keys().next().copied();
                if let Some(name) = name {
                    world.evaluate(shard, name, rng.chance(9, 10));
                }
            }
            _ if !world.fresh.is_empty() => {
                let message = world.fresh.remove(rng.below(world.fresh.len() as u64) as usize);
                // One in eight is lost, or comes late.
                if rng.chance(7, 8) {
                    world.deliver(&message);
                }
                if (late.len() as u64) < LATE_MAX {
                    late.push(message);
                }
            }
            _ => {}
        }
        if rng.chance(1, crashes_in) {
            world.crash(shard);
        }
        world.check();
    }
    assert!(world.settle(), "everything comes to an end");
    world.check_at_rest();
    // Clients ask again for what they have not heard of.
    for group in &groups {
        world.ask(group);
        assert!(world.settle(), "everything comes to an end");
        world.check_at_rest();
    }
    let done = world.answers.values().filter(|answer| **answer == Answer::Done).count();
    (done, world.answers.len())
}

fn attack(protocol: Option<Protocol>) {
    let (mut done, mut answered) = (0, 0);
    for seed in 0..RUNS {
        let run = std::panic::catch_unwind(|| run(seed, protocol));
        let Ok(counts) = run else { panic!("{protocol:?}: seed {seed}") };
        (done, answered) = (done + counts.0, answered + counts.1);
    }
    println!("{protocol:?}: {answered} answers, {done} of them done");
    assert!(done > RUNS as usize && answered > done, "operations are done, and refused: {done} of {answered}");
}

#[test]
fn each_protocol_and_protocols_that_change_under_way_decide_alike_everywhere() {
    Protocol::ALL.into_iter().map(Some).chain([None]).for_each(attack);
}
