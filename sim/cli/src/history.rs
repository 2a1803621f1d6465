//! Files with histories of file systems, for checkers outside.

use crate::failure::Failure;
use braid_check::{FileHistory, file_line};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// A file with histories.
pub struct HistoryFile {
    path: PathBuf,
    state: Mutex<(BufWriter<File>, Option<std::io::Error>)>,
}

impl HistoryFile {
    /// Makes the file, in place of one that exists.
    pub fn create(path: &Path) -> Result<HistoryFile, Failure> {
        let file = File::create(path).map_err(|error| Failure::file(path, &error))?;
        Ok(HistoryFile { path: path.to_path_buf(), state: Mutex::new((BufWriter::new(file), None)) })
    }

    /// Adds the history of a run.
    pub fn add(&self, seed: u64, history: &FileHistory) {
        let lines: String =
            history.operations().iter().map(|operation| format!("{}\n", file_line(seed, operation))).collect();
        let mut state = self.state.lock().expect("nobody panics while it writes");
        if let Err(error) = state.0.write_all(lines.as_bytes()) {
            state.1.get_or_insert(error);
        }
    }

    /// Completes the file.
    pub fn end(self) -> Result<(), Failure> {
        let (mut file, error) = self.state.into_inner().expect("nobody panics while it writes");
        let ended = error.map_or(Ok(()), Err).and_then(|()| file.flush());
        ended.map_err(|error| Failure::file(&self.path, &error))
    }
}
