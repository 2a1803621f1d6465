//! Exports in memory: a working one, one of odd size, one that fails, one whose host ends, one whose requests wait until they are released, and one that takes a
//! while to open for the first time.

use braid_nbd::{Backend, Error, ErrorNumber, Export, Space, Volume};
use bytes::Bytes;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;

pub const DISK_BYTES: u64 = 96 << 20;
pub const ODD_BYTES: u64 = 10_007;
const BLOCK: u64 = 4096;

pub struct Memory {
    disks: Vec<(Export, Disk)>,
    was_late: AtomicBool,
    pub gate: watch::Sender<bool>,
    /// How many requests wait at the gate.
    pub waiting: watch::Sender<usize>,
    /// How many clients were gone before their requests had ended.
    pub gone: watch::Sender<usize>,
}

#[derive(Clone)]
pub struct Disk {
    gone: watch::Sender<usize>,
    content: Arc<Mutex<Content>>,
    mood: Mood,
    /// Whether the client of the connection is gone.
    abandoned: watch::Sender<bool>,
}

struct Content {
    bytes: Vec<u8>,
    allocated: Vec<bool>,
}

#[derive(Clone)]
enum Mood {
    Fine,
    Broken(ErrorNumber),
    Stuck { gate: watch::Sender<bool>, waiting: watch::Sender<usize> },
}

impl Memory {
    pub fn new() -> Memory {
        let (gate, waiting, gone) = (watch::channel(false).0, watch::channel(0).0, watch::channel(0).0);
        let stuck = Mood::Stuck { gate: gate.clone(), waiting: waiting.clone() };
        let disks = vec![
            disk(&gone, "disk", DISK_BYTES, Mood::Fine),
            disk(&gone, "odd", ODD_BYTES, Mood::Fine),
            disk(&gone, "broken", DISK_BYTES, Mood::Broken(ErrorNumber::Io)),
            disk(&gone, "ending", DISK_BYTES, Mood::Broken(ErrorNumber::Shutdown)),
            disk(&gone, "stuck", DISK_BYTES, stuck),
            disk(&gone, "late", DISK_BYTES, Mood::Fine),
        ];
        Memory { disks, was_late: AtomicBool::new(false), gate, waiting, gone }
    }
}

fn disk(gone: &watch::Sender<usize>, name: &str, bytes: u64, mood: Mood) -> (Export, Disk) {
    let export = Export { name: name.into(), bytes, description: format!("the {name} export") };
    let allocated = vec![false; bytes.div_ceil(BLOCK) as usize];
    let content = Arc::new(Mutex::new(Content { bytes: vec![0; bytes as usize], allocated }));
    (export, Disk { gone: gone.clone(), content, mood, abandoned: watch::channel(false).0 })
}

impl Backend for Memory {
    type Volume = Disk;

    async fn exports(&self) -> Vec<Export> {
        self.disks.iter().map(|(export, _)| export.clone()).collect()
    }

    async fn open(&self, name: &str) -> Option<Disk> {
        let (_, disk) = self.disks.iter().find(|(export, _)| export.name == name)?;
        if name == "late" && !self.was_late.swap(true, Relaxed) {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        Some(Disk { abandoned: watch::channel(false).0, ..disk.clone() })
    }
}

impl Disk {
    async fn content(&self) -> Result<std::sync::MutexGuard<'_, Content>, Error> {
        match &self.mood {
            Mood::Fine => {}
            Mood::Broken(number) => return Err(Error::new(*number, "the disk is broken")),
            Mood::Stuck { gate, waiting } => {
                waiting.send_modify(|waiting| *waiting += 1);
                let (mut gate, mut gone) = (gate.subscribe(), self.abandoned.subscribe());
                let is_abandoned = tokio::select! {
                    biased;
                    _ = gone.wait_for(|gone| *gone) => true,
                    _ = gate.wait_for(|open| *open) => false,
                };
                waiting.send_modify(|waiting| *waiting -= 1);
                if is_abandoned {
                    return Err(Error::new(ErrorNumber::Shutdown, "its client is gone"));
                }
            }
        }
        Ok(self.content.lock().unwrap())
    }
}

impl Content {
    fn blocks(&mut self, offset: u64, length: u64) -> &mut [bool] {
        &mut self.allocated[(offset / BLOCK) as usize..(offset + length).div_ceil(BLOCK) as usize]
    }
}

impl Volume for Disk {
    async fn read(&self, offset: u64, length: usize) -> Result<Vec<Bytes>, Error> {
        let bytes = &self.content().await?.bytes[offset as usize..offset as usize + length];
        Ok(bytes.chunks(1 << 20).map(Bytes::copy_from_slice).collect())
    }

    async fn write(&self, offset: u64, data: Bytes) -> Result<(), Error> {
        let mut content = self.content().await?;
        if *self.abandoned.borrow() {
            return Err(Error::new(ErrorNumber::Shutdown, "its client is gone"));
        }
        content.bytes[offset as usize..offset as usize + data.len()].copy_from_slice(&data);
        content.blocks(offset, data.len() as u64).fill(true);
        Ok(())
    }

    async fn zero(&self, offset: u64, length: u64, space: Space) -> Result<(), Error> {
        let mut content = self.content().await?;
        content.bytes[offset as usize..(offset + length) as usize].fill(0);
        if space == Space::Keep {
            content.blocks(offset, length).fill(true);
        } else if offset.is_multiple_of(BLOCK) && length.is_multiple_of(BLOCK) {
            content.blocks(offset, length).fill(false);
        }
        Ok(())
    }

    async fn trim(&self, offset: u64, length: u64) -> Result<(), Error> {
        self.zero(offset, length, Space::GiveBack).await
    }

    async fn flush(&self) -> Result<(), Error> {
        self.content().await.map(|_| ())
    }

    fn abandon(&self) {
        self.abandoned.send_replace(true);
        self.gone.send_modify(|gone| *gone += 1);
    }

    async fn allocation(&self, offset: u64, length: u64) -> Result<Vec<(u64, bool)>, Error> {
        let mut content = self.content().await?;
        let mut runs: Vec<(u64, bool)> = content.blocks(offset, length).iter().map(|is| (BLOCK, *is)).collect();
        runs[0].0 -= offset % BLOCK;
        Ok(runs)
    }
}
