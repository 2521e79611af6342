//! One simulated file: the bytes a running process sees, the bytes that are durable, and the
//! unsynced operations between the two.

use strandline_base::rng::Rng;

use crate::crash_style::CrashStyle;

/// The unit in which unsynced writes survive, vanish or tear, in bytes.
const SECTOR_BYTES: u64 = 512;

#[derive(Clone)]
enum Pending {
    Write { offset: u64, bytes: Vec<u8> },
    SetLen(u64),
}

/// What becomes of one sector of an unsynced write.
enum Fate {
    Survives,
    Vanishes,
    /// The first so many bytes of the piece reach the sector, the rest keeps its old content.
    TornAfter(usize),
    /// The bytes from here on reach the sector.
    TornBefore(usize),
}

#[derive(Clone, Default)]
pub(crate) struct Inode {
    /// What reads return.
    pub current: Vec<u8>,
    /// What a crash cannot take away.
    pub durable: Vec<u8>,
    pending: Vec<Pending>,
}

impl Inode {
    pub fn write(&mut self, bytes: &[u8], offset: u64) {
        apply(&mut self.current, bytes, offset);
        self.pending.push(Pending::Write {
            offset,
            bytes: bytes.to_vec(),
        });
    }

    pub fn set_len(&mut self, len: u64) {
        self.current.resize(len as usize, 0);
        self.pending.push(Pending::SetLen(len));
    }

    /// A successful sync: every operation that is still pending becomes durable.
    pub fn sync(&mut self) {
        for operation in std::mem::take(&mut self.pending) {
            match operation {
                Pending::Write { offset, bytes } => apply(&mut self.durable, &bytes, offset),
                Pending::SetLen(len) => self.durable.resize(len as usize, 0),
            }
        }
    }

    /// A failed sync or a crash: a part of the pending operations, chosen by `style`, becomes
    /// durable. The rest stays readable and is clean: no later sync writes it.
    pub fn settle(&mut self, rng: &mut Rng, style: CrashStyle) {
        for operation in std::mem::take(&mut self.pending) {
            match operation {
                Pending::Write { offset, bytes } => {
                    settle_write(&mut self.durable, &bytes, offset, rng, style);
                }
                Pending::SetLen(len) => {
                    if style.survives(rng) {
                        self.durable.resize(len as usize, 0);
                    }
                }
            }
        }
    }

    /// The kernel drops clean pages: what was lost is not readable any more.
    pub fn drop_clean(&mut self) {
        self.current.clone_from(&self.durable);
        for operation in &self.pending {
            match operation {
                Pending::Write { offset, bytes } => apply(&mut self.current, bytes, *offset),
                Pending::SetLen(len) => self.current.resize(*len as usize, 0),
            }
        }
    }

    /// Flips the bits of `mask` in the byte at `offset`, in what is read and what is durable.
    pub fn flip(&mut self, offset: u64, mask: u8) {
        let at = offset as usize;
        self.current[at] ^= mask;
        if let Some(byte) = self.durable.get_mut(at) {
            *byte ^= mask;
        }
    }
}

fn apply(target: &mut Vec<u8>, bytes: &[u8], offset: u64) {
    let end = offset as usize + bytes.len();
    if target.len() < end {
        target.resize(end, 0);
    }
    target[offset as usize..end].copy_from_slice(bytes);
}

fn settle_write(
    durable: &mut Vec<u8>,
    bytes: &[u8],
    offset: u64,
    rng: &mut Rng,
    style: CrashStyle,
) {
    let mut done = 0;
    while done < bytes.len() {
        let at = offset + done as u64;
        let n = ((SECTOR_BYTES - at % SECTOR_BYTES) as usize).min(bytes.len() - done);
        let piece = &bytes[done..done + n];
        match fate(piece.len(), rng, style) {
            Fate::Survives => apply(durable, piece, at),
            Fate::Vanishes => {}
            Fate::TornAfter(kept) => apply(durable, &piece[..kept], at),
            Fate::TornBefore(lost) => apply(durable, &piece[lost..], at + lost as u64),
        }
        done += n;
    }
}

fn fate(piece_bytes: usize, rng: &mut Rng, style: CrashStyle) -> Fate {
    if style == CrashStyle::Random && piece_bytes > 1 && rng.one_in(4) {
        let cut = 1 + rng.below(piece_bytes as u64 - 1) as usize;
        return if rng.one_in(2) {
            Fate::TornAfter(cut)
        } else {
            Fate::TornBefore(cut)
        };
    }
    if style.survives(rng) {
        Fate::Survives
    } else {
        Fate::Vanishes
    }
}
