//! The device and file traits on a simulated disk.

use std::sync::Arc;

use strandline_base::Result;
use strandline_device::{Device, File, LOCK_FILE, lock_held_error, short_read_error};

use crate::disk::SimDisk;

/// A [`Device`] whose files live on a [`SimDisk`].
#[derive(Debug)]
pub struct SimDevice {
    disk: SimDisk,
}

impl SimDisk {
    /// The device on this disk.
    pub fn device(&self) -> Arc<SimDevice> {
        let disk = self.clone();
        Arc::new(SimDevice { disk })
    }
}

impl SimDevice {
    fn handle(&self, name: &str, inode: usize) -> Arc<dyn File> {
        Arc::new(SimFile {
            disk: self.disk.clone(),
            name: name.to_owned(),
            inode,
        })
    }
}

impl Device for SimDevice {
    fn create(&self, name: &str) -> Result<Arc<dyn File>> {
        let inode = self.disk.state().create(name)?;
        Ok(self.handle(name, inode))
    }

    fn open(&self, name: &str) -> Result<Arc<dyn File>> {
        let state = self.disk.state();
        state.check_running()?;
        let inode = state.find(name)?;
        drop(state);
        Ok(self.handle(name, inode))
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.disk.state().remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.disk.state().rename(from, to)
    }

    fn list(&self) -> Result<Vec<String>> {
        let state = self.disk.state();
        state.check_running()?;
        Ok(state.names.keys().cloned().collect())
    }

    fn sync_directory(&self) -> Result<()> {
        self.disk.state().sync_directory()
    }

    fn lock(&self) -> Result<Box<dyn Send + Sync>> {
        let mut state = self.disk.state();
        state.check_running()?;
        if state.locked {
            return Err(lock_held_error(&self.location(), Some(std::process::id())));
        }
        if state.find(LOCK_FILE).is_err() {
            state.create(LOCK_FILE)?;
        }
        state.locked = true;
        drop(state);
        Ok(Box::new(SimLock(self.disk.clone())))
    }

    fn may_fill_up(&self) -> bool {
        self.disk.state().has_limit()
    }

    fn location(&self) -> String {
        "sim".to_owned()
    }

    fn directory_number(&self) -> Option<u64> {
        Some(self.disk.state().number)
    }
}

struct SimLock(SimDisk);

impl Drop for SimLock {
    fn drop(&mut self) {
        self.0.state().locked = false;
    }
}

#[derive(Debug)]
struct SimFile {
    disk: SimDisk,
    name: String,
    inode: usize,
}

impl File for SimFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let state = self.disk.state();
        state.check_readable(&self.name)?;
        let current = &state.inodes[self.inode].current;
        let found = usize::try_from(offset)
            .ok()
            .and_then(|at| current.get(at..at.checked_add(buf.len())?));
        match found {
            Some(bytes) => {
                buf.copy_from_slice(bytes);
                Ok(())
            }
            None => {
                let place = format!("sim: \"{}\"", self.name);
                Err(short_read_error(
                    place,
                    offset,
                    buf.len(),
                    current.len() as u64,
                ))
            }
        }
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.disk.state().write(&self.name, self.inode, buf, offset)
    }

    fn sync(&self) -> Result<()> {
        self.disk.state().sync(&self.name, self.inode)
    }

    fn len(&self) -> Result<u64> {
        let state = self.disk.state();
        state.check_running()?;
        Ok(state.inodes[self.inode].current.len() as u64)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.disk.state().set_len(&self.name, self.inode, len)
    }
}
