//! Mounts a directory behind a fifo gate until it is unmounted:
//! `passthrough SOURCE MOUNTPOINT [page] [device | uring]`.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use iogate_core::{GateConfig, Layout, SchedulerConfig, SchedulerKind};
use iogate_engine::store::DirectoryStore;
use iogate_engine::{Engine, Store};
use iogate_fuse::{CacheMode, Control, MountOptions, Transport};

/// There is nothing to set here.
struct Fixed;

impl Control for Fixed {
    fn status(&self) -> Vec<u8> {
        b"fifo".to_vec()
    }

    fn set(&self, text: &str) -> Result<(), String> {
        Err(format!("this example has no settings, and got {text}"))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [source, mountpoint, words @ ..] = &arguments[..] else {
        return Err("usage: passthrough SOURCE MOUNTPOINT [page] [device | uring]".into());
    };
    let mut options = MountOptions::default();
    for word in words {
        match word.as_str() {
            "page" => options.cache = CacheMode::Page,
            "device" => options.transport = Transport::Device,
            "uring" => options.transport = Transport::Uring,
            _ => return Err(format!("expected page, device or uring, got {word}").into()),
        }
    }
    let gate = GateConfig {
        scheduler: SchedulerConfig::new(SchedulerKind::Fifo),
        queue_max: 4096,
        depth: 64,
        layout: Layout::SINGLE,
    };
    let store: Arc<dyn Store> = Arc::new(DirectoryStore::new(Path::new(source))?);
    let engine = Engine::new(&gate, store.clone())?;
    let (source, mountpoint) = (Path::new(source), Path::new(mountpoint));
    let mounted = iogate_fuse::mount(source, mountpoint, engine.clone(), store, &options, Arc::new(Fixed))?;
    eprintln!("mounted, by {:?}", mounted.transport());
    mounted.wait();
    engine.shutdown();
    Ok(())
}
