//! The structs of `iogate_gate.h`, and how they are read: by their sizes.

use std::ffi::{c_char, c_void};
use std::ptr;

use iogate_core::{AppId, ClientId, FileId, Op, Request, RequestId, TargetId, Time};

use crate::Failed;

/// `IOGATE_NOW`
pub const NOW: u64 = u64::MAX;
/// `IOGATE_HAS_TARGET`
pub const HAS_TARGET: u32 = 1;
/// `IOGATE_NONBLOCK`
pub const NONBLOCK: u32 = 2;
/// `IOGATE_IDLE`
pub const IDLE: u32 = 0;
/// `IOGATE_DISPATCH`
pub const DISPATCH: u32 = 1;
/// `IOGATE_WAIT`
pub const WAIT: u32 = 2;
/// `IOGATE_QUICK`
pub const QUICK: u32 = 1;

/// `iogate_done`
pub type CDone = unsafe extern "C" fn(user: *mut c_void, result: i64);
/// `iogate_engine_config.carry_out`
pub type CCarryOut = unsafe extern "C" fn(user: *mut c_void, dispatch: *const CDispatch) -> i64;
/// `iogate_engine_config.start`
pub type CStart = unsafe extern "C" fn(user: *mut c_void, dispatch: *const CDispatch);

/// `iogate_gate_config`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the header has them")]
pub struct CConfig {
    pub size: usize,
    pub scheduler: *const c_char,
    pub depth: u32,
    pub queue_max: u32,
    pub run_bytes_max: u64,
    pub run_requests_max: u32,
    pub targets: u32,
    pub stripe_bytes: u64,
}

/// `iogate_request`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the header has them")]
pub struct CRequest {
    pub size: usize,
    pub file: u64,
    pub offset: u64,
    pub bytes: u32,
    pub op: u32,
    pub app: u32,
    pub client: u32,
    pub target: u32,
    pub flags: u32,
    pub issued_ns: u64,
    pub user: *mut c_void,
    pub memory: *mut c_void,
    pub done: Option<CDone>,
}

/// `iogate_part`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the header has them")]
pub struct CPart {
    pub request: u64,
    pub user: *mut c_void,
    pub memory: *mut c_void,
    pub offset: u64,
    pub bytes: u32,
    pub reserved: u32,
}

// SAFETY: the pointers are the program's, and are never followed here.
unsafe impl Send for CPart {}

/// `iogate_dispatch`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the header has them")]
pub struct CDispatch {
    pub id: u64,
    pub file: u64,
    pub offset: u64,
    pub bytes: u64,
    pub op: u32,
    pub target: u32,
    pub app: u32,
    pub part_count: u32,
    pub parts: *const CPart,
}

impl CDispatch {
    /// All zero.
    pub const NONE: CDispatch = CDispatch {
        id: 0,
        file: 0,
        offset: 0,
        bytes: 0,
        op: 0,
        target: 0,
        app: 0,
        part_count: 0,
        parts: ptr::null(),
    };
}

/// `iogate_decision`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the header has them")]
pub struct CDecision {
    pub size: usize,
    pub kind: u32,
    pub reserved: u32,
    pub until_ns: u64,
    pub reason: *const c_char,
    pub dispatch: CDispatch,
}

/// `iogate_engine_config`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the header has them")]
pub struct CEngineConfig {
    pub size: usize,
    pub gate: CConfig,
    pub carry_out: Option<CCarryOut>,
    pub start: Option<CStart>,
    pub user: *mut c_void,
    pub flags: u32,
    pub reserved: u32,
}

impl CEngineConfig {
    /// The gate's settings. They lie within these: what is behind them is not theirs, so they have no room for fields of a later version.
    pub(crate) fn gate(&self) -> Result<&CConfig, Failed> {
        match self.gate.size == size_of::<CConfig>() {
            true => Ok(&self.gate),
            false => Err(wrong_size::<CConfig>(self.gate.size, "config.gate")),
        }
    }
}

/// Most bytes that a struct of a later version may have.
const SIZE_MAX: usize = 4096;

/// Whether a struct's `size`, its first field, is one that this version can read.
fn check_size<T>(size: usize, name: &str) -> Result<(), Failed> {
    if (size_of::<T>()..=SIZE_MAX).contains(&size) {
        return Ok(());
    }
    Err(wrong_size::<T>(size, name))
}

fn wrong_size<T>(size: usize, name: &str) -> Failed {
    Failed::invalid(format!("`{name}`: size is {size}; expected its sizeof, {}", size_of::<T>()))
}

/// Reads a struct that begins with its size.
///
/// # Safety
/// `from` is null, or points to as many bytes as its first field says (at least that field, where it says less).
pub(crate) unsafe fn read<T: Copy>(from: *const T, name: &str) -> Result<T, Failed> {
    check_pointer(from, name)?;
    // SAFETY: there is at least the first field.
    let size = unsafe { from.cast::<usize>().read() };
    if size != size_of::<T>() {
        check_size::<T>(size, name)?;
        let behind = from.cast::<u8>().wrapping_add(size_of::<T>());
        // SAFETY: so many bytes are there.
        let more = unsafe { std::slice::from_raw_parts(behind, size - size_of::<T>()) };
        if more.iter().any(|byte| *byte != 0) {
            return Err(Failed::invalid(format!("`{name}` has fields of a later version of iogate_gate.h")));
        }
    }
    // SAFETY: so many bytes are there, aligned, and any bytes are such a struct (function pointers are what C wrote).
    Ok(unsafe { from.read() })
}

/// Refuses null pointers, and those that no such thing can be at.
pub(crate) fn check_pointer<T>(pointer: *const T, name: &str) -> Result<(), Failed> {
    if pointer.is_null() {
        return Err(Failed::invalid(format!("`{name}` is a null pointer")));
    }
    if !pointer.is_aligned() {
        return Err(Failed::invalid(format!("`{name}` is not aligned: expected a pointer to that struct")));
    }
    Ok(())
}

/// The size of a struct to be written, checked.
///
/// # Safety
/// `to` is null, or points to at least the first field.
pub(crate) unsafe fn check_place<T>(to: *const T, name: &str) -> Result<(), Failed> {
    check_pointer(to, name)?;
    // SAFETY: there is at least the first field.
    check_size::<T>(unsafe { to.cast::<usize>().read() }, name)
}

/// A time from C.
pub(crate) fn time(ns: u64, name: &str) -> Result<Time, Failed> {
    match i64::try_from(ns) {
        Ok(_) => Ok(Time::from_nanos(ns)),
        Err(_) => Err(Failed::invalid(format!("`{name}` is {ns}: expected at most {}", i64::MAX))),
    }
}

impl CRequest {
    /// As the gate has it.
    ///
    /// # Errors
    /// If the operation or a flag is unknown, or the issue time too late.
    pub fn request(&self, id: RequestId, flags: u32) -> Result<Request, Failed> {
        let op = match self.op {
            0 => Op::Read,
            1 => Op::Write,
            op => {
                return Err(Failed::invalid(format!("op is {op}: expected IOGATE_READ or IOGATE_WRITE")));
            }
        };
        if self.flags & !flags != 0 {
            return Err(Failed::invalid(format!(
                "flags are {:#x}: expected none but {flags:#x} here",
                self.flags
            )));
        }
        Ok(Request {
            id,
            file: FileId(self.file),
            op,
            offset: self.offset,
            bytes: self.bytes,
            app: AppId(self.app),
            client: ClientId(self.client),
            target: (self.flags & HAS_TARGET != 0).then_some(TargetId(self.target)),
            issued: match self.issued_ns {
                0 => None,
                ns => Some(time(ns, "issued_ns")?),
            },
        })
    }
}
