//! Runs rounds of one workload under callgrind, which counts the instructions of [`counted_rounds`]. `cargo xtask instructions`
//! starts this program; without a name it lists the workloads.

use braid_benches::{Rounds, workloads};
use std::hint::black_box;
use std::process::ExitCode;

/// Rounds before the counted ones, so that buffers have their final size and everything that is created only once exists.
const WARM_UP: usize = 64;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [] => workloads().iter().for_each(|workload| println!("{}", workload.name)),
        [name, count]
            if let Some(workload) = workloads().iter().find(|workload| workload.name == name)
                && let Ok(count) = count.parse() =>
        {
            let mut rounds = workload.begin();
            rounds.prepare(WARM_UP);
            rounds.run();
            rounds.prepare(count);
            counted_rounds(&mut *rounds);
        }
        _ => {
            eprintln!("usage: counted [WORKLOAD ROUNDS]; without arguments it lists the workloads");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// Callgrind identifies this function by its name, so it must not be inlined.
#[inline(never)]
fn counted_rounds(rounds: &mut dyn Rounds) {
    rounds.run();
    black_box(());
}
