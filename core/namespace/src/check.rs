//! A check of a whole file system. It verifies the invariants of this crate, in bounded memory, and a few keys at a time. The map must not
//! change meanwhile.
//!
//! First all inodes are checked, in *windows*: as many inodes as fit into memory. For each window, all entries of the file system are
//! read, to count those that refer to an inode of the window. Then all blocks are checked, in windows, too: for each window, all runs and
//! extents are read, to see that each of its blocks occurs once.
//!
//! | module | what |
//! | --- | --- |
//! | `blocks` | a window of blocks |
//! | `finding` | what a check can find |
//! | `inodes` | a window of inodes |
//! | `scan` | reading a range of keys, one by one |

mod blocks;
mod finding;
mod inodes;
mod scan;

use crate::keys;
use crate::records::{Counters, Parameters};
use blocks::BlockWindow;
use braid_base::InodeId;
use braid_objects::{NotHere, Obstacle, View};
pub use finding::Finding;
use finding::Report;
use inodes::InodeWindow;
use scan::read;

/// The bounds of a check's memory.
#[derive(Clone, Copy, Debug)]
pub struct Windows {
    /// The most inodes in a window.
    pub inodes: usize,
    /// The most blocks in a window.
    pub blocks: u64,
}

impl Default for Windows {
    /// Some 30 MiB.
    fn default() -> Windows {
        Windows { inodes: 1 << 17, blocks: 1 << 26 }
    }
}

/// A check under way.
#[derive(Clone, Debug)]
pub struct Check {
    windows: Windows,
    stage: Stage,
    report: Report,
}

#[derive(Clone, Debug)]
enum Stage {
    Records,
    Inodes(Parameters, InodeWindow),
    Blocks(Parameters, BlockWindow),
    Counters,
    Done,
}

impl Check {
    /// A check that is to begin.
    pub fn new(windows: Windows) -> Check {
        assert!(windows.inodes > 0 && windows.blocks > 0, "a window is not empty");
        Check { windows, stage: Stage::Records, report: Report::default() }
    }

    /// Continues the check until it has read about `keys` keys. True if it is complete. `Err` if a key is not in memory: call again when
    /// it has been read.
    pub fn step(&mut self, view: &mut dyn View, keys: usize) -> Result<bool, NotHere> {
        for _ in 0..keys {
            if matches!(self.stage, Stage::Done) {
                break;
            }
            self.advance(view)?;
        }
        Ok(matches!(self.stage, Stage::Done))
    }

    /// What was found so far, and how much more was found than is listed.
    pub fn findings(&self) -> (&[Finding], u64) {
        (&self.report.findings, self.report.omitted)
    }

    /// Reads one more key.
    fn advance(&mut self, view: &mut dyn View) -> Result<(), NotHere> {
        let Check { windows, stage, report } = self;
        let next = match stage {
            Stage::Records if is_blank(view)? => {
                report.add(Finding::Blank);
                Some(Stage::Done)
            }
            Stage::Records => match read(view, keys::PARAMETERS, report, |_, value| Parameters::decode(value))? {
                Some(parameters) => Some(Stage::Inodes(parameters, InodeWindow::from(InodeId(0), windows.inodes))),
                None => {
                    report.add(Finding::NoFileSystem);
                    Some(Stage::Done)
                }
            },
            Stage::Inodes(parameters, window) => {
                window.advance(view, parameters, report)?.then(|| match window.next(windows.inodes) {
                    Some(next) => Stage::Inodes(parameters.clone(), next),
                    None => Stage::Blocks(parameters.clone(), BlockWindow::from(0, windows.blocks, parameters.blocks)),
                })
            }
            Stage::Blocks(parameters, window) => {
                window.advance(view, report)?.then(|| match window.next(windows.blocks, parameters.blocks) {
                    Some(next) => Stage::Blocks(parameters.clone(), next),
                    None => Stage::Counters,
                })
            }
            Stage::Counters => {
                if let Some(counters) = read(view, keys::COUNTERS, report, |_, value| Counters::decode(value))? {
                    report.compare(counters);
                }
                Some(Stage::Done)
            }
            Stage::Done => None,
        };
        if let Some(next) = next {
            self.stage = next;
        }
        Ok(())
    }
}

/// True if nothing of a file system is there: whoever serves it first makes all of these at once.
fn is_blank(view: &mut dyn View) -> Result<bool, NotHere> {
    for key in [keys::PARAMETERS, keys::COUNTERS, keys::inode(InodeId::ROOT)] {
        match view.get(key) {
            Ok(None) => {}
            Ok(Some(_)) | Err(Obstacle::Lost) => return Ok(false),
            Err(Obstacle::NotHere) => return Err(NotHere),
        }
    }
    Ok(true)
}
