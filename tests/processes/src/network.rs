//! Networks of a test's own: name spaces with a link between them that can be cut, whole or in one direction.
//!
//! A thread that has [entered](Namespace::enter) a name space takes along whatever it starts, threads and processes. A cut leaves the
//! link up and drops what it carries: frames are sent to a neighbour that does not exist, so that nobody is told.

use crate::program::run;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};

/// Nobody's.
const NO_NEIGHBOUR: &str = "02:00:00:00:0b:ad";

/// A network name space with a loopback device; gone in the end.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

/// Two name spaces, and a link between them.
#[derive(Debug)]
pub struct Link {
    /// The end at [`Link::NEAR`].
    pub near: Namespace,
    /// The end at [`Link::FAR`].
    pub far: Namespace,
}

/// What a cut link carries no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Anything.
    Whole,
    /// What the near end sends.
    ToFar,
    /// What the far end sends.
    ToNear,
}

impl Namespace {
    fn new() -> Option<Namespace> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("braid-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        if run("ip", &["netns", "add", &name]).status != Some(0) {
            return None;
        }
        let namespace = Namespace { name };
        namespace.ip(&["link", "set", "lo", "up"]);
        Some(namespace)
    }

    /// The rest of this thread, and all that it starts, is in this name space.
    pub fn enter(&self) {
        let file = File::open(format!("/run/netns/{}", self.name)).expect("it is there");
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).expect("root may enter it");
    }

    /// Does something in it, in a thread of its own.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                self.enter();
                work()
            });
            thread.join().expect("its own words are above")
        })
    }

    fn ip(&self, arguments: &[&str]) {
        run("ip", &[&["-n", &self.name], arguments].concat()).done();
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        run("ip", &["netns", "del", &self.name]);
    }
}

impl Link {
    /// Where the near end can be reached.
    pub const NEAR: &str = "10.77.0.1";
    /// Where the far end can be reached.
    pub const FAR: &str = "10.77.0.2";

    /// A fresh one; none, with a word why, where the system does not permit it.
    pub fn new() -> Option<Link> {
        let (Some(near), Some(far)) = (Namespace::new(), Namespace::new()) else {
            eprintln!("SKIPPED: no network name spaces can be made here (root is needed, and the kernel's leave)");
            return None;
        };
        let pair = ["link", "add", "veth0", "netns", &near.name, "type", "veth", "peer", "name", "veth0", "netns"];
        if run("ip", &[&pair[..], &[&far.name]].concat()).status != Some(0) {
            eprintln!("SKIPPED: no links between network name spaces can be made here");
            return None;
        }
        for (end, address) in [(&near, Link::NEAR), (&far, Link::FAR)] {
            end.ip(&["address", "add", &format!("{address}/24"), "dev", "veth0"]);
            end.ip(&["link", "set", "veth0", "up"]);
        }
        Some(Link { near, far })
    }

    /// Carries that no more.
    pub fn cut(&self, cut: Cut) {
        let lose = |end: &Namespace, to: &str| {
            end.ip(&["neighbour", "replace", to, "lladdr", NO_NEIGHBOUR, "dev", "veth0", "nud", "permanent"]);
        };
        if cut != Cut::ToNear {
            lose(&self.near, Link::FAR);
        }
        if cut != Cut::ToFar {
            lose(&self.far, Link::NEAR);
        }
    }

    /// Carries everything again.
    pub fn heal(&self) {
        for (end, to) in [(&self.near, Link::FAR), (&self.far, Link::NEAR)] {
            // It may not have been cut in this direction.
            run("ip", &["-n", &end.name, "neighbour", "del", to, "dev", "veth0"]);
        }
    }
}
