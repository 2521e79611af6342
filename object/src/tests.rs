//! The device over the simulated store.

mod reads;
mod requests;
mod urls;
mod writes;

use std::time::Duration;

use object_store::path::Path;
use strandline_base::Error;
use strandline_base::sync::Arc;
use strandline_device::{Device, File, RequestStats};
use strandline_sim::SimStore;

use crate::{ObjectDevice, Options};

/// Small parts, so that a file of a few kilobytes is uploaded in parts.
fn options() -> Options {
    Options {
        part_bytes: 1000,
        parts_in_flight: 2,
        attempts: 3,
        request_timeout: Duration::from_secs(30),
        operation_timeout: Duration::from_secs(60),
        ..Options::default()
    }
}

/// A device over `store` whose clock does not wait.
fn device_with(store: &SimStore, options: Options) -> ObjectDevice {
    let (store, prefix) = (Arc::new(store.clone()), Path::from("a/b"));
    let runtime = SimStore::runtime().expect("runtime");
    ObjectDevice::on_runtime(store, prefix, "sim://bucket/a/b", options, runtime).expect("device")
}

fn device(store: &SimStore) -> ObjectDevice {
    device_with(store, options())
}

/// `len` bytes that differ between places.
fn content(len: usize) -> Vec<u8> {
    (0..len as u32).map(|i| (i % 251) as u8).collect()
}

fn write(device: &dyn Device, name: &str, bytes: &[u8]) -> Result<Arc<dyn File>, Error> {
    let file = device.create(name)?;
    file.write_all_at(bytes, 0)?;
    file.sync()?;
    Ok(file)
}

fn read(file: &dyn File, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xee; len];
    file.read_exact_at(&mut bytes, offset).expect("read");
    bytes
}

fn whole(device: &dyn Device, name: &str) -> Vec<u8> {
    let file = device.open(name).expect("open");
    read(&*file, 0, file.len().expect("len") as usize)
}

fn stats(device: &dyn Device, kind: &str) -> RequestStats {
    let mut stats = device.request_stats().into_iter();
    stats.find(|stats| stats.kind == kind).expect("a kind")
}
