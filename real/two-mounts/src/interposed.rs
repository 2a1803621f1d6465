//! The functions of the C library that take paths. Each passes its arguments on to the function that it stands before, which it finds by
//! `dlsym`.
//!
//! `open` and `openat` have a variable number of arguments in C. Here they always have the mode: where it is missing, what is passed on is
//! what happens to be in its register, and the C library does not look at it. This is right where arguments of both kinds are passed in
//! the same registers, as on the processors below.

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("on other processors, arguments of variadic functions may be passed elsewhere");

use crate::{PathArgument, Side, is_of_program};
use std::ffi::{c_char, c_int, c_long, c_uint, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// The place of the device in the structure of `statx`.
const STATX_DEVICE: usize = 0x88;
/// The next library after this one.
const NEXT: *mut c_void = -1isize as *mut c_void;

// Safe: that is their declaration in the C library.
#[allow(unsafe_code)]
unsafe extern "C" {
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    fn abort() -> !;
}

/// Passes an argument on as it is.
trait Plain: Sized {
    fn on(self, _: &Side) -> PlainOnSide<Self> {
        PlainOnSide(self)
    }
}

struct PlainOnSide<T>(T);

impl<T: Copy> PlainOnSide<T> {
    fn as_argument(&self) -> T {
        self.0
    }
}

impl Plain for c_int {}
impl Plain for c_uint {}
impl Plain for c_long {}
impl Plain for u64 {}
impl Plain for usize {}
impl Plain for *const c_char {}
impl Plain for *const c_void {}
impl Plain for *mut c_void {}

/// Where a function writes what it finds out about a file.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct StatArgument(*mut c_void);

/// The same in the form of `statx`.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct StatxArgument(*mut c_void);

/// After the call, the number of the file's device becomes zero.
struct FoundOnSide<T> {
    argument: T,
    device: *mut u64,
    is_below: bool,
}

impl<T: Copy> FoundOnSide<T> {
    fn as_argument(&self) -> T {
        self.argument
    }
}

impl<T> Drop for FoundOnSide<T> {
    fn drop(&mut self) {
        if self.is_below && is_of_program(self.device.addr()) {
            // Safe: the program has given the whole structure for writing, and the number is in it.
            #[allow(unsafe_code)]
            unsafe {
                self.device.write_unaligned(0);
            }
        }
    }
}

impl StatArgument {
    /// The device is the first field.
    fn on(self, side: &Side) -> FoundOnSide<StatArgument> {
        FoundOnSide { argument: self, device: self.0.cast(), is_below: side.is_below.get() }
    }
}

impl StatxArgument {
    /// The two parts of the device follow each other.
    fn on(self, side: &Side) -> FoundOnSide<StatxArgument> {
        FoundOnSide {
            argument: self,
            device: self.0.wrapping_byte_add(STATX_DEVICE).cast(),
            is_below: side.is_below.get(),
        }
    }
}

macro_rules! interpose {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => { $(
        // Safe: the name and the arguments are those of the C library, so that programs which call this function pass what it demands; and
        // what it finds has them, too.
        #[allow(unsafe_code)]
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            static FOUND: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
            let found = found(&FOUND, concat!(stringify!($name), "\0"));
            let side = Side::next();
            $(let $argument = $argument.on(&side);)*
            unsafe {
                let function: unsafe extern "C" fn($($type),*) -> $result = std::mem::transmute(found);
                function($($argument.as_argument()),*)
            }
        }
    )* };
}

/// The function that one of these stands before. A program that calls one that does not exist can't go on.
fn found(known: &AtomicPtr<c_void>, name: &'static str) -> *mut c_void {
    let mut function = known.load(Ordering::Relaxed);
    if function.is_null() {
        // Safe: the name ends with a zero byte.
        #[allow(unsafe_code)]
        unsafe {
            function = dlsym(NEXT, name.as_ptr().cast());
            if function.is_null() {
                abort();
            }
        }
        known.store(function, Ordering::Relaxed);
    }
    function
}

interpose! {
    open(path: PathArgument, flags: c_int, mode: c_uint) -> c_int;
    open64(path: PathArgument, flags: c_int, mode: c_uint) -> c_int;
    openat(at: c_int, path: PathArgument, flags: c_int, mode: c_uint) -> c_int;
    openat64(at: c_int, path: PathArgument, flags: c_int, mode: c_uint) -> c_int;
    creat(path: PathArgument, mode: c_uint) -> c_int;
    creat64(path: PathArgument, mode: c_uint) -> c_int;
    opendir(path: PathArgument) -> *mut c_void;
    mkdir(path: PathArgument, mode: c_uint) -> c_int;
    mkdirat(at: c_int, path: PathArgument, mode: c_uint) -> c_int;
    mkfifo(path: PathArgument, mode: c_uint) -> c_int;
    mkfifoat(at: c_int, path: PathArgument, mode: c_uint) -> c_int;
    mknod(path: PathArgument, mode: c_uint, device: u64) -> c_int;
    mknodat(at: c_int, path: PathArgument, mode: c_uint, device: u64) -> c_int;
    symlink(target: *const c_char, path: PathArgument) -> c_int;
    symlinkat(target: *const c_char, at: c_int, path: PathArgument) -> c_int;
    link(from: PathArgument, to: PathArgument) -> c_int;
    linkat(from_at: c_int, from: PathArgument, to_at: c_int, to: PathArgument, flags: c_int) -> c_int;
    rename(from: PathArgument, to: PathArgument) -> c_int;
    renameat(from_at: c_int, from: PathArgument, to_at: c_int, to: PathArgument) -> c_int;
    renameat2(from_at: c_int, from: PathArgument, to_at: c_int, to: PathArgument, flags: c_uint) -> c_int;
    unlink(path: PathArgument) -> c_int;
    unlinkat(at: c_int, path: PathArgument, flags: c_int) -> c_int;
    rmdir(path: PathArgument) -> c_int;
    chdir(path: PathArgument) -> c_int;
    access(path: PathArgument, mode: c_int) -> c_int;
    faccessat(at: c_int, path: PathArgument, mode: c_int, flags: c_int) -> c_int;
    chmod(path: PathArgument, mode: c_uint) -> c_int;
    fchmodat(at: c_int, path: PathArgument, mode: c_uint, flags: c_int) -> c_int;
    chown(path: PathArgument, user: c_uint, group: c_uint) -> c_int;
    lchown(path: PathArgument, user: c_uint, group: c_uint) -> c_int;
    fchownat(at: c_int, path: PathArgument, user: c_uint, group: c_uint, flags: c_int) -> c_int;
    truncate(path: PathArgument, size: c_long) -> c_int;
    truncate64(path: PathArgument, size: c_long) -> c_int;
    utimes(path: PathArgument, times: *const c_void) -> c_int;
    utimensat(at: c_int, path: PathArgument, times: *const c_void, flags: c_int) -> c_int;
    stat(path: PathArgument, found: StatArgument) -> c_int;
    stat64(path: PathArgument, found: StatArgument) -> c_int;
    lstat(path: PathArgument, found: StatArgument) -> c_int;
    lstat64(path: PathArgument, found: StatArgument) -> c_int;
    fstatat(at: c_int, path: PathArgument, found: StatArgument, flags: c_int) -> c_int;
    fstatat64(at: c_int, path: PathArgument, found: StatArgument, flags: c_int) -> c_int;
    statx(at: c_int, path: PathArgument, flags: c_int, fields: c_uint, found: StatxArgument) -> c_int;
    readlink(path: PathArgument, target: *mut c_void, length: usize) -> c_long;
    readlinkat(at: c_int, path: PathArgument, target: *mut c_void, length: usize) -> c_long;
}
