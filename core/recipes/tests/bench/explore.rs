//! Exhaustive exploration of tiny worlds: every order of the clients' steps, and every lost answer and crash within a budget.
//!
//! A step is a request that is executed and answered, or a wait that ends; when a wait is chosen, the clock advances to its end, however
//! long other clients are delayed. So a request that is not chosen while others continue is a late one. A request whose answer is lost is
//! executed at any moment before its client's next request, or never; the last request of a crashed client is executed at any later moment,
//! or never.

use super::Doing;
use super::space::Space;
use super::world::{CALM, Fate, World};
use braid_base::Time;
use braid_recipes::{Answer, Next, RequestFailure};
use braid_wire::ObjectRequest;
use std::time::Duration;

/// The faults of one run, and its length.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// How many answers may be lost.
    pub unknown: u32,
    /// How many clients may crash.
    pub deaths: u32,
    /// How many waits may end. A run that needs more is aborted.
    pub waits: u32,
}

/// Runs the clients in every way that the budget allows, with these objects at the beginning. Checks the end of each run, also of aborted
/// ones. Returns how many ways there were, and in how many of them all clients finished or crashed.
pub fn explore<L>(
    budget: Budget,
    space: &Space,
    begin: impl Fn() -> (L, Vec<Doing<L>>),
    after_each: impl Fn(&mut L, &Space) + Clone + 'static,
    at_end: impl Fn(&mut World<L>),
) -> (u64, u64) {
    let mut choices = Choices::default();
    let (mut runs, mut ended) = (0, 0);
    loop {
        let (observed, clients) = begin();
        let mut world = World::new(0, CALM, &[], observed);
        world.space = space.clone();
        world.after_each(after_each.clone());
        for doing in clients {
            world.add(doing);
        }
        runs += 1;
        ended += u64::from(one_way(&mut world, budget, &mut choices));
        at_end(&mut world);
        if !choices.advance() {
            return (runs, ended);
        }
    }
}

/// The choices of one run, and the choices of the next.
#[derive(Default)]
struct Choices {
    made: Vec<(usize, usize)>,
    at: usize,
}

impl Choices {
    fn choose(&mut self, of: usize) -> usize {
        if self.at == self.made.len() {
            self.made.push((0, of));
        }
        let (chosen, among) = self.made[self.at];
        assert_eq!(among, of, "the same choices lead to the same place");
        self.at += 1;
        chosen
    }

    fn advance(&mut self) -> bool {
        self.made.truncate(self.at);
        self.at = 0;
        while let Some((chosen, of)) = self.made.pop() {
            if chosen + 1 < of {
                self.made.push((chosen + 1, of));
                return true;
            }
        }
        false
    }
}

/// The outcome of a chosen client's step.
#[derive(Clone, Copy, Debug)]
enum Way {
    Well,
    Lost,
    Dies,
}

/// More steps than any of these tiny worlds needs.
const STEPS_MAX: u32 = 1000;

fn one_way<L>(world: &mut World<L>, mut budget: Budget, choices: &mut Choices) -> bool {
    let mut wanted: Vec<Option<Next<()>>> = Vec::new();
    let mut since = Vec::new();
    // Requests that may still be executed although no client waits for them.
    let mut pending = Vec::new();
    for client in 0..world.clients.len() {
        wanted.push(world.step(client, Answer::None).map(|(next, _)| next));
        since.push(world.now);
    }
    for _ in 0..STEPS_MAX {
        let able: Vec<usize> = (0..wanted.len()).filter(|client| wanted[*client].is_some()).collect();
        let ends = usize::from(able.is_empty());
        let chosen = choices.choose(able.len() + pending.len() + ends);
        if chosen < pending.len() {
            let (client, request) = pending.remove(chosen);
            world.execute(client, &request);
            continue;
        }
        let Some(&client) = able.get(chosen - pending.len()) else { return true };
        let wants = wanted[client].take().expect("it wants something");
        let mut ways = vec![Way::Well];
        let asks = matches!(wants, Next::Ask { .. });
        if asks && budget.unknown > 0 {
            ways.push(Way::Lost);
        }
        if budget.deaths > 0 {
            ways.push(Way::Dies);
        }
        let way = ways[choices.choose(ways.len())];
        if !asks && matches!(way, Way::Well) {
            if budget.waits == 0 {
                return false;
            }
            budget.waits -= 1;
        }
        let answer = go(world, client, wants, since[client], way, &mut pending);
        match way {
            Way::Lost => budget.unknown -= 1,
            Way::Dies => budget.deaths -= 1,
            Way::Well => {}
        }
        match answer {
            Some(answer) => {
                wanted[client] = world.step(client, answer).map(|(next, _)| next);
                since[client] = world.now;
            }
            None => world.clients[client].fate = Fate::Dead,
        }
    }
    panic!("no end after {STEPS_MAX} steps");
}

/// The answer to the client; none if it has crashed.
fn go<L>(
    world: &mut World<L>,
    client: usize,
    wants: Next<()>,
    since: Time,
    way: Way,
    pending: &mut Vec<(usize, ObjectRequest)>,
) -> Option<Answer> {
    let answer = match (wants, way) {
        (Next::Ask { request, .. }, Way::Well) => {
            pending.retain(|(of, _)| *of != client);
            world.execute(client, &request)
        }
        (Next::Ask { request, .. }, Way::Lost) => {
            pending.push((client, request));
            Answer::RequestFailure(RequestFailure::Unknown)
        }
        (Next::Ask { request, .. }, Way::Dies) => {
            pending.push((client, request));
            return None;
        }
        (_, Way::Dies) => return None,
        (Next::Sleep(span), _) => {
            world.now = world.now.max(since.after(span));
            Answer::None
        }
        (Next::Await { object, name, seen, patience }, _) => {
            let value = world.space.value(object, name);
            if value == seen {
                world.now = world.now.max(since.after(patience));
            }
            Answer::Value(value)
        }
        (Next::Done(()), _) => unreachable!("the end of a procedure is the beginning of the next"),
    };
    // A round trip takes time, too.
    world.now = world.now.after(Duration::from_micros(100));
    Some(answer)
}
