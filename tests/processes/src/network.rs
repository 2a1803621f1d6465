//! Network namespaces with a link between them that can be cut, in both directions or in one.
//!
//! Threads and processes started by a thread that has [entered](Namespace::enter) a namespace are in that namespace, too. A cut leaves the
//! link up and drops its traffic: frames are sent to a neighbour that does not exist, so that no side is notified.

use crate::program::run;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};

/// An address that no interface has.
const NO_NEIGHBOUR: &str = "02:00:00:00:0b:ad";

/// A network namespace with a loopback device, removed when dropped.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

/// Two namespaces, and a link between them.
#[derive(Debug)]
pub struct Link {
    /// The end at [`Link::NEAR`].
    pub near: Namespace,
    /// The end at [`Link::FAR`].
    pub far: Namespace,
}

/// The directions in which a link is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Both directions.
    Whole,
    /// Frames sent by the near end.
    ToFar,
    /// Frames sent by the far end.
    ToNear,
}

impl Namespace {
    /// A new one; none, with a message, where the system does not permit it.
    pub fn new() -> Option<Namespace> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("braid-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        if run("ip", &["netns", "add", &name]).status != Some(0) {
            eprintln!("SKIPPED: network namespaces can't be created here (this needs root, and support in the kernel)");
            return None;
        }
        let namespace = Namespace { name };
        namespace.ip(&["link", "set", "lo", "up"]);
        Some(namespace)
    }

    /// Moves this thread into the namespace, with all that it starts.
    pub fn enter(&self) {
        let file = File::open(format!("/run/netns/{}", self.name)).expect("it exists");
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).expect("root may enter a namespace");
    }

    /// Runs a closure in the namespace, in a new thread.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                self.enter();
                work()
            });
            thread.join().expect("the thread's message is above")
        })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs `ip` for it.
    pub fn ip(&self, arguments: &[&str]) {
        run("ip", &[&["-n", &self.name], arguments].concat()).done();
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        run("ip", &["netns", "del", &self.name]);
    }
}

impl Link {
    /// The address of the near end.
    pub const NEAR: &str = "10.77.0.1";
    /// The address of the far end.
    pub const FAR: &str = "10.77.0.2";

    /// A new link; none, with a message, where the system does not permit it.
    pub fn new() -> Option<Link> {
        let (near, far) = (Namespace::new()?, Namespace::new()?);
        let pair = ["link", "add", "veth0", "netns", &near.name, "type", "veth", "peer", "name", "veth0", "netns"];
        if run("ip", &[&pair[..], &[&far.name]].concat()).status != Some(0) {
            eprintln!("SKIPPED: links between network namespaces can't be created here");
            return None;
        }
        for (end, address) in [(&near, Link::NEAR), (&far, Link::FAR)] {
            end.ip(&["address", "add", &format!("{address}/24"), "dev", "veth0"]);
            end.ip(&["link", "set", "veth0", "up"]);
        }
        Some(Link { near, far })
    }

    /// Cuts the link.
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

    /// Restores the link in both directions.
    pub fn heal(&self) {
        for (end, to) in [(&self.near, Link::FAR), (&self.far, Link::NEAR)] {
            // The link may not have been cut in this direction.
            run("ip", &["-n", &end.name, "neighbour", "del", to, "dev", "veth0"]);
        }
    }
}
