//! Drops what the kernel keeps of a file when the host's data lock is revoked. Each revocation runs by itself: one that waits for a device keeps
//! no other from its end. An inode has one at a time, which ends when the kernel knows the size again, if it follows it.

use crate::Caller;
use crate::files::HostFiles;
use crate::kernel_cache::KernelCache;
use braid_base::InodeId;
use braid_machine::{FilesRequest, FilesSuccess};
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::collections::BTreeMap;
use std::convert::Infallible;

/// The most files that are looked at, at once.
const LOOKS_MAX: usize = 64;

/// Has the kernel learn the sizes of files that stay open, also if nothing of them is read through pages: programs may read them asynchronously,
/// or poll their ends. That is late by a moment, so that a host that only has a file open takes its data lock ten times a second at most.
pub async fn follow_open_files(files: &HostFiles, kernel: &KernelCache) -> Infallible {
    let mut running = FuturesUnordered::new();
    loop {
        tokio::select! {
            Some(()) = running.next(), if !running.is_empty() => {}
            (inode, file) = kernel.next_long_open(), if running.len() < LOOKS_MAX => running.push(async move {
                if let Ok((size, Some(last))) = files.tail(&Caller::default(), file).await {
                    kernel.lengthen(inode, size, last).await;
                }
            }),
        }
    }
}

pub async fn keep_coherent(files: &HostFiles, kernel: &KernelCache) -> Infallible {
    loop {
        let Some(host) = files.next_host().await else { return std::future::pending().await };
        let mut running = FuturesUnordered::new();
        // True: revoked again meanwhile.
        let mut busy: BTreeMap<InodeId, bool> = BTreeMap::new();
        let revocation = |inode: InodeId| {
            let host = host.clone();
            async move {
                kernel.drop_pages(inode).await;
                let follows = kernel.follower(inode).and_then(|file| files.handle_of(&host, file));
                let answer = files.ask(&host, FilesRequest::Dropped { inode, follows }).await;
                if let Ok(FilesSuccess::Tail { size, last }) = answer
                    && let Some(last) = last.last()
                {
                    kernel.lengthen_after_reads(inode, size, *last).await;
                }
                kernel.look_later(inode);
                inode
            }
        };
        let mut next = std::pin::pin!(files.ask(&host, FilesRequest::AwaitRevocation));
        loop {
            tokio::select! {
                biased;
                Some(ended) = running.next(), if !running.is_empty() => {
                    if busy.remove(&ended) == Some(true) {
                        busy.insert(ended, false);
                        running.push(revocation(ended));
                    }
                }
                answer = &mut next => {
                    let Ok(FilesSuccess::Revoked(inodes)) = answer else { break };
                    for inode in inodes {
                        match busy.get_mut(&inode) {
                            Some(again) => *again = true,
                            None => {
                                busy.insert(inode, false);
                                running.push(revocation(inode));
                            }
                        }
                    }
                    next.set(files.ask(&host, FilesRequest::AwaitRevocation));
                }
            }
        }
        // What the host had is lost: others may change it from now on.
        drop(running);
        kernel.drop_all().await;
        files.until_replaced(&host).await;
    }
}
