//! The bytes of a copy, from the beginning of a file to its end. Holes are skipped: what was not allocated in the source is not in the copy
//! either.
//!
//! A target that could be its source under another name is overwritten in place, and cut at the end: so even a file that was not recognized
//! keeps its bytes. All other targets are emptied first.

use super::place::Found;
use crate::failure::Failure;
use braid_client::{Bytes, File, FilesError};
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{JoinHandle, JoinSet, spawn_blocking};

/// Bytes are copied in parts of this size.
const PART_BYTES: usize = 4 << 20;
/// How many parts of a file are read or written at a time.
const PARTS_MAX: usize = 4;
/// By how much the times of one file may seem to differ on two ways to it.
const SAME_TIME: Duration = Duration::from_secs(3);

/// Bytes of a file. Between two parts is a hole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub offset: u64,
    pub data: Bytes,
}

/// A file that is being read from its beginning to its end.
pub enum Source {
    Local {
        file: Arc<std::fs::File>,
        is_special: bool,
        /// What was read so far.
        at: u64,
        /// Bytes up to here are in no hole.
        run_end: u64,
    },
    Mounted {
        file: File,
        /// Where the next part to read begins; none if there is none.
        next: Option<u64>,
        /// Bytes up to here are in no hole.
        run_end: u64,
        /// What was read so far; the length, when that is known.
        at: u64,
        /// Parts that are being read, in order.
        reads: VecDeque<Reading>,
    },
}

/// A part of a file that is being read: its offset and length, and its bytes.
type Reading = (u64, usize, JoinHandle<Result<Bytes, FilesError>>);

impl Source {
    pub fn local(file: std::fs::File, found: &Found) -> Source {
        let run_end = if found.is_sparse() && !found.is_special { 0 } else { u64::MAX };
        Source::Local { file: Arc::new(file), is_special: found.is_special, at: 0, run_end }
    }

    pub fn mounted(file: File, found: &Found) -> Source {
        let run_end = if found.is_sparse() { 0 } else { u64::MAX };
        Source::Mounted { file, next: Some(0), run_end, at: 0, reads: VecDeque::new() }
    }

    /// The next bytes; none at the end.
    pub async fn next(&mut self) -> Result<Option<Part>, Failure> {
        match self {
            Source::Local { file, is_special, at, run_end } => {
                if *at >= *run_end {
                    let (found, from) = (file.clone(), *at);
                    match blocking(move || next_run(&found, from)).await? {
                        Some((start, end)) => (*at, *run_end) = (start, end),
                        None => {
                            *at = file.metadata()?.len().max(*at);
                            return Ok(None);
                        }
                    }
                }
                let (file, from, is_special) = (file.clone(), *at, *is_special);
                let most = (PART_BYTES as u64).min(*run_end - from) as usize;
                let data = blocking(move || read(&file, from, most, is_special)).await?;
                *at += data.len() as u64;
                Ok(Some(Part { offset: from, data: data.into() }).filter(|part| !part.data.is_empty()))
            }
            Source::Mounted { file, next, run_end, at, reads } => {
                while let Some(from) = *next
                    && reads.len() < PARTS_MAX
                {
                    if from >= *run_end {
                        let run = file.next_data(from).await?;
                        if run.is_empty() {
                            (*next, *at) = (None, run.end);
                            break;
                        }
                        (*next, *run_end) = (Some(run.start), run.end);
                        continue;
                    }
                    let length = (PART_BYTES as u64).min(*run_end - from) as usize;
                    let file = file.clone();
                    reads.push_back((from, length, tokio::spawn(async move { file.read_at(from, length).await })));
                    *next = Some(from + length as u64);
                }
                let Some((offset, length, read)) = reads.pop_front() else { return Ok(None) };
                let data = read.await.unwrap_or(Err(FilesError::Closed))?;
                let end = offset + data.len() as u64;
                *at = end.max(*at);
                if data.len() < length {
                    // The file ends there.
                    reads.drain(..).for_each(|(.., read)| read.abort());
                    (*next, *at) = (None, end);
                }
                Ok(Some(Part { offset, data }).filter(|part| !part.data.is_empty()))
            }
        }
    }

    /// The length of the file, after its end was reached.
    pub fn length(&self) -> u64 {
        match self {
            Source::Local { at, .. } | Source::Mounted { at, .. } => *at,
        }
    }

    /// True if the file has another length, or was written, since it was opened.
    pub async fn has_changed(&self, opened: &Found) -> Result<bool, Failure> {
        let (length, modified) = match self {
            Source::Local { file, .. } => file.metadata().and_then(|found| Ok((found.len(), found.modified()?)))?,
            Source::Mounted { file, .. } => file.metadata().await.map(|found| (found.len(), found.modified()))?,
        };
        Ok((length, modified) != (opened.length, opened.modified))
    }

    pub async fn close(self) -> Result<(), Failure> {
        match self {
            Source::Local { .. } => Ok(()),
            Source::Mounted { file, reads, .. } => {
                reads.iter().for_each(|(.., read)| read.abort());
                Ok(file.close().await?)
            }
        }
    }
}

/// The first bytes from there on that are in no hole; none at the end of the file.
fn next_run(file: &std::fs::File, from: u64) -> std::io::Result<Option<(u64, u64)>> {
    match rustix::fs::seek(file, SeekFrom::Data(from)) {
        Ok(start) => Ok(Some((start, rustix::fs::seek(file, SeekFrom::Hole(start))?))),
        Err(Errno::NXIO) => Ok(None),
        // The file system knows no holes.
        Err(Errno::INVAL) => Ok(Some((from, u64::MAX))),
        Err(error) => Err(error.into()),
    }
}

fn read(file: &std::fs::File, from: u64, most: usize, is_special: bool) -> std::io::Result<Vec<u8>> {
    if !is_special {
        rustix::fs::seek(file, SeekFrom::Start(from))?;
    }
    let mut data = Vec::with_capacity(most);
    Read::take(file, most as u64).read_to_end(&mut data)?;
    Ok(data)
}

/// A file that is being written from its beginning to its end.
pub struct Target {
    file: TargetFile,
    /// Pipes and disks have neither a length nor holes.
    is_special: bool,
    length: u64,
    /// What was written so far, holes included.
    at: u64,
}

enum TargetFile {
    Local(Arc<std::fs::File>),
    Mounted {
        file: File,
        /// Parts that are being written.
        writes: JoinSet<Result<(), Failure>>,
    },
}

impl Target {
    pub fn local(file: std::fs::File, found: &Found) -> Target {
        let file = TargetFile::Local(Arc::new(file));
        Target { file, is_special: found.is_special, length: found.length, at: 0 }
    }

    pub fn mounted(file: File, found: &Found) -> Target {
        let file = TargetFile::Mounted { file, writes: JoinSet::new() };
        Target { file, is_special: false, length: found.length, at: 0 }
    }

    /// Empties the file, unless what was opened could be the source under another name.
    pub async fn begin(&mut self, source: &Found, target: &Found) -> Result<(), Failure> {
        let (one, other) = (source.modified, target.modified);
        let apart = one.duration_since(other).or_else(|_| other.duration_since(one)).unwrap_or_default();
        let could_be = source.length == target.length && apart <= SAME_TIME;
        if self.length > 0 && !could_be { self.set_length(0).await } else { Ok(()) }
    }

    pub async fn write(&mut self, part: Part) -> Result<(), Failure> {
        self.skip_to(part.offset).await?;
        self.put(part.data).await
    }

    /// Ends the file there, and closes it.
    pub async fn close(mut self, length: u64) -> Result<(), Failure> {
        self.skip_to(length).await?;
        self.settle().await?;
        if !self.is_special && self.length != length {
            self.set_length(length).await?;
        }
        match self.file {
            TargetFile::Local(_) => Ok(()),
            TargetFile::Mounted { file, .. } => Ok(file.close().await?),
        }
    }

    /// Leaves a hole. What was there before is overwritten with zeros.
    async fn skip_to(&mut self, offset: u64) -> Result<(), Failure> {
        let end = if self.is_special { offset } else { offset.min(self.length) };
        while self.at < end {
            let length = (end - self.at).min(PART_BYTES as u64);
            self.put(Bytes::from(vec![0; length as usize])).await?;
        }
        self.at = self.at.max(offset);
        Ok(())
    }

    async fn put(&mut self, data: Bytes) -> Result<(), Failure> {
        let (at, is_special) = (self.at, self.is_special);
        self.at += data.len() as u64;
        self.length = self.length.max(self.at);
        match &mut self.file {
            TargetFile::Local(file) => {
                let file = file.clone();
                blocking(move || if is_special { (&*file).write_all(&data) } else { file.write_all_at(&data, at) })
                    .await?;
            }
            TargetFile::Mounted { file, writes } => {
                if writes.len() == PARTS_MAX {
                    joined(writes.join_next().await)?;
                }
                let file = file.clone();
                writes.spawn(async move { Ok(file.write_at(at, data).await?) });
            }
        }
        Ok(())
    }

    async fn settle(&mut self) -> Result<(), Failure> {
        if let TargetFile::Mounted { writes, .. } = &mut self.file {
            while let Some(written) = writes.join_next().await {
                joined(Some(written))?;
            }
        }
        Ok(())
    }

    async fn set_length(&mut self, length: u64) -> Result<(), Failure> {
        self.settle().await?;
        match &self.file {
            TargetFile::Local(file) => file.set_len(length)?,
            TargetFile::Mounted { file, .. } => file.set_len(length).await?,
        }
        self.length = length;
        Ok(())
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> std::io::Result<T> + Send + 'static) -> Result<T, Failure> {
    Ok(spawn_blocking(work).await.expect("file operations do not panic")?)
}

/// The outcome of a task that copies.
pub fn joined(outcome: Option<Result<Result<(), Failure>, tokio::task::JoinError>>) -> Result<(), Failure> {
    outcome.map_or(Ok(()), |outcome| outcome.expect("copying does not panic"))
}
