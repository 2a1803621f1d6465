//! Code that the command-line programs share (`braid`, `braid bench`, `braid-sim`): arguments, output, progress bars, signals.
//!
//! | module | what |
//! | --- | --- |
//! | [`arguments`] | arguments that every command takes, and parsers of sizes, rates, times and orderings |
//! | [`outline`] | the outline of a command line, for completion by another program |
//! | [`output`] | text or JSON on standard output, progress bars, tables, error reports |
//! | [`signals`] | Ctrl-C and SIGTERM |

pub mod arguments;
pub mod outline;
pub mod output;
pub mod signals;

pub use arguments::Common;
pub use signals::Signals;

/// Logs to standard error: warnings, or what `RUST_LOG` asks for, such as `debug` or `warn,braid_session=debug`.
pub fn log_to_stderr() {
    use std::io::IsTerminal;
    use tracing_subscriber::filter::{LevelFilter, Targets};
    use tracing_subscriber::{Layer, fmt, prelude::*, registry};
    let asked_for = std::env::var("RUST_LOG").ok().and_then(|text| text.parse::<Targets>().ok());
    let filter = asked_for.unwrap_or_else(|| Targets::new().with_default(LevelFilter::WARN));
    let lines = fmt::layer().with_writer(std::io::stderr).with_ansi(std::io::stderr().is_terminal()).with_target(false);
    registry().with(lines.with_filter(filter)).init();
}

/// What `--version` prints behind the name of the program: the release, and the cargo profile that it was built with.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (profile ", env!("BRAID_PROFILE"), ")");
