//! Candidates among a simulated registry, links, clocks and devices: stories that are told step by step, and swarm runs in which everything
//! fails that may fail. The swarm is what planted bugs must be found by (`bugs/leadership-*.patch`).

mod checks;
mod faults;
mod stories;
mod swarm;
mod world;
