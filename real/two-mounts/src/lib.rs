//! A library that tests preload into a program (`LD_PRELOAD`), so that it uses two mounts of a file system in turn.
//!
//! The program is given paths below the first mount. The library stands before the functions of the C library that take paths: every other
//! call gets the path of the same file below the second mount. So what one call does, the next sees through another host:
//!
//! ```text
//!   program: mkdir /a/x, stat /a/x, open /a/x/y, unlink /a/x/y
//!                  │           │           │             │
//!                 /a/x        /b/x        /a/x/y        /b/x/y
//! ```
//!
//! The mounts are in the variable `BRAID_TWO_MOUNTS`, separated by a colon: two absolute paths of the same length, since some tests use the
//! longest possible path. A call with two paths gets both on the same mount. The target of a symbolic link stays, and so do calls on
//! descriptors, `bind`, and paths relative to the working directory or to a descriptor: they go to the mount where that was opened.
//! The mounts have different device numbers, which programs compare; so files that are named by such a path appear to have number zero.
//!
//! `interposed` has the functions; this file has what they share.

mod interposed;

use std::cell::Cell;
use std::ffi::{CStr, CString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

const VARIABLE: &str = "BRAID_TWO_MOUNTS";

/// The two mounts.
#[derive(Debug, PartialEq, Eq)]
struct Mounts {
    first: Vec<u8>,
    second: Vec<u8>,
}

/// The mounts, and on which of them a call is to be.
struct Side {
    mounts: Option<&'static Mounts>,
    is_second: bool,
    /// A path of the call is below the first mount.
    is_below: Cell<bool>,
}

impl Side {
    /// The side of the next call.
    fn next() -> Side {
        static MOUNTS: OnceLock<Option<Mounts>> = OnceLock::new();
        static CALLS: AtomicU32 = AtomicU32::new(0);
        let mounts = MOUNTS.get_or_init(|| Mounts::parse(std::env::var_os(VARIABLE)?.as_bytes())).as_ref();
        Side { mounts, is_second: CALLS.fetch_add(1, Ordering::Relaxed) % 2 == 1, is_below: Cell::new(false) }
    }

    /// The path of the same file on this side; `None` if the path stays.
    fn path(&self, path: &CStr) -> Option<CString> {
        let on_second = self.mounts?.on_second(path.to_bytes())?;
        self.is_below.set(true);
        CString::new(on_second).ok().filter(|_| self.is_second)
    }
}

impl Mounts {
    fn parse(variable: &[u8]) -> Option<Mounts> {
        let colon = variable.iter().position(|byte| *byte == b':')?;
        let (first, second) = (variable[..colon].to_vec(), variable[colon + 1..].to_vec());
        let is_usable = first.starts_with(b"/") && second.starts_with(b"/") && first.len() == second.len();
        is_usable.then_some(Mounts { first, second })
    }

    /// The path on the second mount of a file that the path names on the first.
    fn on_second(&self, path: &[u8]) -> Option<Vec<u8>> {
        let rest = path.strip_prefix(&self.first[..])?;
        let is_below = rest.is_empty() || rest.starts_with(b"/");
        is_below.then(|| [&self.second[..], rest].concat())
    }
}

/// A path that the program passes to a function.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct PathArgument(*const c_char);

/// A path on its side: as it was, or another that lives until the call has ended.
struct PathOnSide {
    given: *const c_char,
    other: Option<CString>,
}

impl PathArgument {
    fn on(self, side: &Side) -> PathOnSide {
        // No pointer, or one to the kernel's half of memory, is an error that the kernel is to report: there are tests of that.
        let other = if !is_of_program(self.0.addr()) {
            None
        } else {
            // Safe: the functions demand a string that ends with a zero byte, and that does not change during the call.
            #[allow(unsafe_code)]
            let path = unsafe { CStr::from_ptr(self.0) };
            side.path(path)
        };
        PathOnSide { given: self.0, other }
    }
}

impl PathOnSide {
    fn as_argument(&self) -> PathArgument {
        PathArgument(self.other.as_ref().map_or(self.given, |other| other.as_ptr()))
    }
}

/// True if a pointer may be to memory of the program.
fn is_of_program(address: usize) -> bool {
    address != 0 && address <= isize::MAX as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_below_the_first_mount_are_moved() {
        let mounts = Mounts::parse(b"/tmp/a:/tmp/b").expect("two paths of the same length");
        let moved = |path: &str| mounts.on_second(path.as_bytes()).map(|path| String::from_utf8(path).expect("text"));
        assert_eq!(moved("/tmp/a/x/y").as_deref(), Some("/tmp/b/x/y"));
        assert_eq!(moved("/tmp/a").as_deref(), Some("/tmp/b"));
        assert_eq!(moved("/tmp/a/").as_deref(), Some("/tmp/b/"));
        for path in ["/tmp/ab", "/tmp/b/x", "tmp/a/x", "x", "", "/tmp"] {
            assert_eq!(moved(path), None, "{path}");
        }
    }

    #[test]
    fn unusable_mounts_are_ignored() {
        for variable in ["", "/a", "/a:b", "a:/b", "/a:/long", ":"] {
            assert_eq!(Mounts::parse(variable.as_bytes()), None, "{variable}");
        }
    }

    #[test]
    fn every_other_call_is_on_the_second_side() {
        let sides: Vec<bool> = (0..4).map(|_| Side::next().is_second).collect();
        assert!(sides == [false, true, false, true] || sides == [true, false, true, false]);
    }
}
