//! How soon a process reads the array's folder again: at once when what it follows there has been replaced, which the kernel tells
//! (`inotify(7)`), and twice a second for some seconds after that. While nothing changes it looks seldom, because each look wakes a processor.
//!
//! What is followed is replaced whenever another process comes to serve the array, or the array is changed. Renewed leases and the monitor's
//! report are not followed. Where the kernel does not tell, as on a network file system, a change is seen with the next look.

use crate::Moment;
use crate::paths::{DESCRIPTION, GENERATIONS, RUN, SUPERVISION};
use rustix::fs::inotify::{CreateFlags, Reader, WatchFlags, add_watch, init};
use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

const FOLLOWED: [&str; 4] = [DESCRIPTION, RUN, GENERATIONS, SUPERVISION];
/// For so long after a change more is expected: a process that has just begun soon says where it serves.
const UNSETTLED: Duration = Duration::from_secs(3);
/// Changes within this time are seen with one look.
const GATHERED: Duration = Duration::from_millis(10);
/// The wait before a folder without one of these files is tried again.
const MISSING_PAUSE: Duration = Duration::from_secs(2);

/// When a folder was changed last; none while the kernel does not tell.
type Changed = watch::Receiver<Option<Instant>>;

/// The folders that this process follows.
static FOLDERS: Mutex<BTreeMap<PathBuf, Changed>> = Mutex::new(BTreeMap::new());

/// Returns when the folder may have been changed, at the latest after `within`, or `at_rest`.
pub(crate) async fn changed(dir: &Path, within: Duration, at_rest: Duration) {
    let mut changed = of(dir);
    let span = if is_at_rest(&changed) { at_rest } else { within };
    changed.mark_unchanged();
    match tokio::time::timeout(until_next(span), changed.changed()).await {
        Ok(Ok(())) => tokio::time::sleep(GATHERED).await,
        // Nobody follows it any more.
        Ok(Err(_)) => tokio::time::sleep(within).await,
        Err(_) => {}
    }
}

/// True if what is followed in the folder was not changed for a while.
pub(crate) fn is_settled(dir: &Path) -> bool {
    is_at_rest(&of(dir))
}

fn is_at_rest(changed: &Changed) -> bool {
    changed.borrow().is_some_and(|last| last.elapsed() > UNSETTLED)
}

/// The time until the next of the moments that are `span` apart. They are the same for all processes of the machine, so that a process wakes
/// once for all that it does then.
pub fn until_next(span: Duration) -> Duration {
    let (now, span) = (Moment::now().elapsed.as_nanos(), span.as_nanos().max(1));
    Duration::from_nanos((span - now % span) as u64)
}

fn of(dir: &Path) -> Changed {
    let mut folders = FOLDERS.lock().unwrap_or_else(PoisonError::into_inner);
    let is_followed = |changed: &Changed| changed.has_changed().is_ok();
    if let Some(changed) = folders.get(dir).filter(|changed| is_followed(changed)) {
        return changed.clone();
    }
    let (tell, changed) = watch::channel(None);
    let path = dir.to_path_buf();
    let thread = std::thread::Builder::new().name("folder".to_string()).stack_size(64 << 10);
    // Without the thread, the folder is read as often as if the kernel did not tell.
    let _ = thread.spawn(move || follow(&path, &tell));
    folders.insert(dir.to_path_buf(), changed.clone());
    changed
}

/// Tells of changes as long as the folder exists.
fn follow(dir: &Path, tell: &watch::Sender<Option<Instant>>) {
    while dir.exists() {
        let inotify = init(CreateFlags::CLOEXEC);
        while inotify.as_ref().is_ok_and(|inotify| watch_all(inotify, dir)) {
            tell.send_replace(Some(Instant::now()));
            let mut buffer = [MaybeUninit::uninit(); 1024];
            if inotify.as_ref().is_ok_and(|inotify| Reader::new(inotify, &mut buffer).next().is_err()) {
                break;
            }
        }
        tell.send_if_modified(|last| last.take().is_some());
        std::thread::sleep(MISSING_PAUSE);
    }
}

/// Watches the files that have these names now. False if one is missing.
fn watch_all(inotify: &OwnedFd, dir: &Path) -> bool {
    // The attributes change when another file takes the name, even if the file stays open.
    let flags = WatchFlags::ATTRIB | WatchFlags::MODIFY | WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF;
    FOLLOWED.iter().all(|name| add_watch(inotify, dir.join(name), flags).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ControlError;
    use crate::folder::tests::Scratch;
    use crate::run::RunningSet;

    const LOOK: Duration = Duration::from_millis(100);
    const LIMIT: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn a_folder_at_rest_is_read_seldom_and_at_once_when_it_is_changed() {
        let (_scratch, folder) = Scratch::with_array("followed");
        assert!(!is_settled(folder.dir()), "it is not followed yet");
        let supervision = folder.supervise().unwrap();
        supervision.publish(&RunningSet::begun(1)).unwrap();
        let begun = Instant::now();
        while !is_settled(folder.dir()) {
            assert!(begun.elapsed() < LIMIT, "it never comes to rest");
            changed(folder.dir(), LOOK, 4 * LOOK).await;
        }
        assert!(begun.elapsed() >= UNSETTLED);
        // Renewals do not count.
        let now = Moment::now();
        folder.publish_monitor(&now, crate::MonitorReport::default()).unwrap();
        changed(folder.dir(), LOOK, 4 * LOOK).await;
        let begun = Instant::now();
        changed(folder.dir(), LOOK, 4 * LOOK).await;
        assert!(begun.elapsed() > 3 * LOOK, "{:?}", begun.elapsed());
        let changes: [&dyn Fn(); 3] = [
            &|| folder.update(|_| Ok::<_, ControlError>(())).unwrap(),
            &|| assert!(folder.leases().take_generation("test", &now).is_ok()),
            &|| supervision.publish(&RunningSet::begun(2)).unwrap(),
        ];
        for change in changes {
            let (begun, hour) = (Instant::now(), Duration::from_secs(3600));
            let looked = async {
                tokio::task::yield_now().await;
                change();
            };
            tokio::time::timeout(LIMIT, async { tokio::join!(changed(folder.dir(), hour, hour), looked) })
                .await
                .unwrap();
            assert!(begun.elapsed() < LIMIT && !is_settled(folder.dir()));
        }
    }
}
