//! A backend that serves the volumes of a host: it splits clients' requests into storage transactions.
//!
//! A request that fits into one transaction is atomic, whatever crashes. A longer request is split, if possible into whole stripes, so that
//! parity need not be read. Several pieces of a request are in progress at once. The reply waits for all of them even if one fails,
//! since the client may write there again once it has its reply.

use crate::{Backend, Error, ErrorNumber, Export, Space, Volume};
use braid_base::{BLOCK_BYTES, BlockRange, limits};
use braid_layout::{VolumeDescription, pieces};
use braid_machine::{HostError, HostOutcome, HostSuccess, Patience, VolumeRequest};
use braid_shell::{ClientSession, HostClient, Warning};
use braid_wire::{Failure, Rejection};
use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use std::sync::{Arc, LazyLock};
use tokio::sync::{Semaphore, watch};

/// The most pieces of one request in progress at once.
const PIECES_AT_ONCE: usize = 8;
/// The longest range that one transaction zeroes, in bytes.
const ZERO_BYTES_MAX: u64 = 64 << 20;
/// A device reports the allocation of this many bytes at least, even if each block is an extent of its own.
const ALLOCATION_BYTES: u64 = (limits::EXTENTS_MAX * BLOCK_BYTES) as u64;
/// The longest range whose allocation is reported at once, in bytes; clients ask again for the rest.
const ALLOCATION_BYTES_MAX: u64 = 64 * ALLOCATION_BYTES;
/// All requests in flight share the places of patient requests in the host's operation table, and 128 MiB of memory: a piece takes one
/// permit for each 64 KiB begun.
const BYTES_PER_PLACE: u64 = 64 << 10;

/// Limits the rate of warnings: clients may repeat a request that fails again and again.
static UNAVAILABLE: LazyLock<Warning> = LazyLock::new(Warning::default);

static ZEROS: LazyLock<Bytes> = LazyLock::new(|| vec![0; limits::TRANSACTION_BYTES_MAX].into());

/// Serves the volumes of one host.
#[derive(Clone, Debug)]
pub struct HostBackend {
    host: HostClient,
    served: watch::Receiver<Vec<ServedVolume>>,
    places: Arc<Semaphore>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedVolume {
    /// The export's name.
    pub name: String,
    /// A description for people, on one line.
    pub description: String,
    /// The layout of the volume. The host must have taken it in.
    pub volume: VolumeDescription,
    /// How long requests wait for devices that are missing.
    pub patience: Patience,
}

impl HostBackend {
    /// Serves the volumes that `served` contains at each moment; clients that have a volume open keep it.
    pub fn new(host: HostClient, served: watch::Receiver<Vec<ServedVolume>>) -> HostBackend {
        HostBackend { host, served, places: Arc::new(Semaphore::new(limits::PATIENT_OPERATIONS_MAX)) }
    }
}

impl Backend for HostBackend {
    type Volume = HostVolume;

    async fn exports(&self) -> Vec<Export> {
        let export = |served: &ServedVolume| Export {
            name: served.name.clone(),
            bytes: served.volume.bytes,
            description: served.description.clone(),
        };
        self.served.borrow().iter().map(export).collect()
    }

    async fn open(&self, name: &str) -> Option<HostVolume> {
        let ServedVolume { volume, patience, .. } =
            self.served.borrow().iter().find(|served| served.name == name)?.clone();
        Some(HostVolume { session: self.host.session(), volume, patience, places: self.places.clone() })
    }
}

/// A volume that a client has open.
#[derive(Debug)]
pub struct HostVolume {
    session: ClientSession,
    volume: VolumeDescription,
    patience: Patience,
    places: Arc<Semaphore>,
}

impl Volume for HostVolume {
    async fn read(&self, offset: u64, length: usize) -> Result<Vec<Bytes>, Error> {
        let (volume, patience) = (self.volume.id, self.patience);
        let read = |offset, length| VolumeRequest::Read { volume, offset, length: length as usize, patience };
        let brought = self.each_piece(offset, length as u64, self.transaction_bytes(), read).await?;
        let data = brought.into_iter().flat_map(|success| match success {
            HostSuccess::Data(buffers) => buffers,
            other => unreachable!("a host answers a read with data, not {other:?}"),
        });
        Ok(data.collect())
    }

    async fn write(&self, offset: u64, data: Bytes) -> Result<(), Error> {
        let (volume, patience) = (self.volume.id, self.patience);
        self.each_piece(offset, data.len() as u64, self.transaction_bytes(), |at, length| {
            let start = (at - offset) as usize;
            VolumeRequest::Write { volume, offset: at, data: data.slice(start..start + length as usize), patience }
        })
        .await
        .map(|_| ())
    }

    async fn zero(&self, offset: u64, length: u64, space: Space) -> Result<(), Error> {
        let (volume, patience) = (self.volume.id, self.patience);
        let zeroed = match space {
            Space::GiveBack => {
                let zero = |offset, length| VolumeRequest::Zero { volume, offset, length, patience };
                match self.each_piece(offset, length, self.zero_bytes(), zero).await {
                    // The volume may have moved since it was opened, to a layout with smaller units, so that a piece has too many of them.
                    Err(Error { number: ErrorNumber::Invalid, .. }) => {
                        self.each_piece(offset, length, limits::TRANSACTION_BYTES_MAX as u64, zero).await
                    }
                    zeroed => zeroed,
                }
            }
            Space::Keep => {
                let zeros = |length: u64| ZEROS.slice(..length as usize);
                let write = |offset, length| VolumeRequest::Write { volume, offset, data: zeros(length), patience };
                self.each_piece(offset, length, self.transaction_bytes(), write).await
            }
        };
        zeroed.map(|_| ())
    }

    async fn trim(&self, offset: u64, length: u64) -> Result<(), Error> {
        let block = BLOCK_BYTES as u64;
        let start = offset.next_multiple_of(block);
        let end = (offset + length) / block * block;
        if start >= end { Ok(()) } else { self.zero(start, end - start, Space::GiveBack).await }
    }

    async fn flush(&self) -> Result<(), Error> {
        self.call(VolumeRequest::Flush { volume: self.volume.id }, 0).await.map(|_| ()).map_err(error)
    }

    fn abandon(&self) {
        self.session.abandon();
    }

    async fn allocation(&self, offset: u64, length: u64) -> Result<Vec<(u64, bool)>, Error> {
        let (block, volume, patience) = (BLOCK_BYTES as u64, self.volume.id, self.patience);
        let start = offset / block * block;
        let end = (offset + length).next_multiple_of(block).min(start + ALLOCATION_BYTES_MAX);
        let blocks = |offset: u64, length: u64| BlockRange::new(offset / block, length / block);
        let ask = |offset, length| VolumeRequest::Allocation { volume, range: blocks(offset, length), patience };
        let told = self.each_piece(start, end - start, ALLOCATION_BYTES, ask).await?;
        let runs = told.into_iter().flat_map(|success| match success {
            HostSuccess::Allocation(runs) => runs,
            other => unreachable!("a host answers with runs of blocks, not {other:?}"),
        });
        let mut runs: Vec<(u64, bool)> = runs.map(|(blocks, allocated)| (blocks * block, allocated)).collect();
        if let Some(first) = runs.first_mut() {
            // The request begins within this run's first block.
            first.0 -= offset - start;
        }
        Ok(runs)
    }
}

impl HostVolume {
    /// Sends a request for each piece of a range; returns the host's answers in order.
    async fn each_piece(
        &self,
        offset: u64,
        length: u64,
        most: u64,
        request: impl Fn(u64, u64) -> VolumeRequest,
    ) -> Result<Vec<HostSuccess>, Error> {
        if length <= most {
            // A range that fits into one transaction is not split, wherever it begins, so that it is atomic.
            return self.call(request(offset, length), length).await.map(|success| vec![success]).map_err(error);
        }
        let pieces = pieces(offset, offset + length, most, most).into_iter();
        let calls = pieces.map(|(offset, length)| self.call(request(offset, length), length));
        let outcomes: Vec<HostOutcome> = stream::iter(calls).buffered(PIECES_AT_ONCE).collect().await;
        outcomes.into_iter().collect::<Result<_, _>>().map_err(error)
    }

    async fn call(&self, request: VolumeRequest, length: u64) -> HostOutcome {
        let most = limits::TRANSACTION_BYTES_MAX as u64;
        let places = length.min(most).div_ceil(BYTES_PER_PLACE).max(1);
        let _places = self.places.acquire_many(places as u32).await.expect("it is never closed");
        self.session.call(request).await
    }

    fn transaction_bytes(&self) -> u64 {
        whole_stripes(limits::TRANSACTION_BYTES_MAX as u64, self.stripe_bytes())
    }

    /// The longest range to zero in one transaction: on one device it has at most one extent in each stripe.
    fn zero_bytes(&self) -> u64 {
        let stripe = self.stripe_bytes();
        whole_stripes(ZERO_BYTES_MAX.min(stripe * (limits::EXTENTS_MAX as u64 - 1)), stripe)
    }

    fn stripe_bytes(&self) -> u64 {
        self.volume.layout.stripe_blocks() * BLOCK_BYTES as u64
    }
}

/// The length of a piece: the largest multiple of a stripe within `most`, or `most` itself if a stripe is longer.
fn whole_stripes(most: u64, stripe: u64) -> u64 {
    if stripe <= most { most / stripe * stripe } else { most }
}

fn error(error: HostError) -> Error {
    if let HostError::Unavailable { .. } = &error {
        UNAVAILABLE.say(|| format!("a client's request was refused: {error}"));
    }
    let number = match &error {
        HostError::Device { failure: Failure::NoSpace, .. } => ErrorNumber::NoSpace,
        HostError::OutOfRange => ErrorNumber::Invalid,
        HostError::Busy => ErrorNumber::NoMemory,
        HostError::Stopped
        | HostError::Disconnecting
        | HostError::Fenced
        | HostError::Abandoned
        | HostError::Rejected { rejection: Rejection::Fenced, .. } => ErrorNumber::Shutdown,
        _ => ErrorNumber::Io,
    };
    Error::new(number, error.to_string())
}
