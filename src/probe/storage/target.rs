//! The place that is measured: room, a private folder, and whether direct I/O works there.
//!
//! Here: what is checked before the first byte. Not here: the measuring.
//!
//! Invariant: a file system is never filled, and the folder goes when the [`Target`] goes.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, OFlags, fadvise};
use tempfile::TempDir;

use super::data::{Buffer, SECTOR};
use crate::probe::ProbeError;
use crate::probe::root::Volume;

/// The least room that must stay free, in bytes.
const KEEP_BYTES: u64 = 1 << 30;

/// A private folder on the measured file system; it and all in it are removed on drop.
#[derive(Debug)]
pub(super) struct Target {
    folder: TempDir,
    /// True when reads and writes go past the page cache.
    pub(super) direct: bool,
    /// True when the file system has no device behind it.
    in_memory: bool,
}

/// Refuses when writing `need` bytes would leave less than 5 % of the volume or 1 GiB free.
pub(super) fn check_room(volume: &Volume, need: u64) -> Result<(), ProbeError> {
    let keep = (volume.bytes / 20).max(KEEP_BYTES);
    if volume.free_bytes >= need.saturating_add(keep) {
        return Ok(());
    }
    let reason = format!(
        "find room for {need} B: {free} B are free of {all} B, and {keep} B must stay free",
        free = volume.free_bytes,
        all = volume.bytes
    );
    Err(ProbeError::Refused { reason })
}

impl Target {
    /// Makes the folder and finds out whether direct I/O works in it; the notes say if not.
    pub(super) fn make(
        path: &Path,
        volume: &Volume,
        direct: bool,
    ) -> Result<(Self, Vec<String>), ProbeError> {
        // The run stands in the name, so that whoever kills this process can find what it leaves.
        let run = std::env::var("PLANRUN_RUN").unwrap_or_else(|_| "by-hand".to_owned());
        let folder = tempfile::Builder::new()
            .prefix(&format!(".planrun-storage-{run}-"))
            .tempdir_in(path)
            .map_err(io_error(format!("make a folder in {}", path.display())))?;
        let in_memory = matches!(volume.kind.as_str(), "tmpfs" | "ramfs");
        let mut target = Self { folder, direct: false, in_memory };
        let mut notes = Vec::new();
        if in_memory {
            notes.push(format!("{} is in memory ({}): no disk is measured", path.display(), volume.kind));
        } else if !direct {
            notes.push("direct I/O was switched off: the page cache takes part".to_owned());
        } else if let Err(error) = target.try_direct() {
            if error.kind() != io::ErrorKind::InvalidInput && error.kind() != io::ErrorKind::Unsupported {
                return Err(io_error(format!("write to {}", target.file().display()))(error));
            }
            notes.push(format!("direct I/O is not possible on {}: the page cache takes part", volume.kind));
        } else {
            target.direct = true;
        }
        Ok((target, notes))
    }

    /// The big file.
    pub(super) fn file(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// The folder for small files.
    pub(super) fn small(&self) -> PathBuf {
        self.folder.path().join("small")
    }

    /// How warm the caches of the host are when a read phase starts.
    ///
    /// Caches of the hypervisor, the storage network and the device are out of sight.
    pub(super) fn cache(&self) -> &'static str {
        match (self.in_memory, self.direct) {
            (true, _) => "warm",
            (_, true) => "cold",
            (_, false) => "unknown",
        }
    }

    /// Opens the big file for reading and writing, past the page cache where that works.
    pub(super) fn open(&self) -> Result<File, ProbeError> {
        let flags = if self.direct { OFlags::DIRECT } else { OFlags::empty() };
        let path = self.file();
        open(&path, flags).map_err(io_error(format!("open {}", path.display())))
    }

    /// Asks the kernel to forget the big file's pages, where it would otherwise answer from them.
    pub(super) fn drop_cache(&self) -> Result<(), ProbeError> {
        if self.direct || self.in_memory {
            return Ok(());
        }
        let file = self.open()?;
        // Only an advice: the label `unknown` stays, whatever it answers.
        let _ = fadvise(&file, 0, None, Advice::DontNeed);
        Ok(())
    }

    /// Removes the folder.
    pub(super) fn remove(self) -> Result<(), ProbeError> {
        let path = self.folder.path().to_owned();
        self.folder.close().map_err(io_error(format!("remove {}", path.display())))
    }

    /// Writes and reads one sector past the page cache: some file systems refuse only there.
    fn try_direct(&self) -> io::Result<()> {
        let path = self.folder.path().join("direct");
        let file = open(&path, OFlags::DIRECT)?;
        let mut sector = Buffer::new(SECTOR);
        file.write_all_at(sector.get(), 0)?;
        file.read_exact_at(sector.get_mut(), 0)?;
        std::fs::remove_file(path)
    }
}

fn open(path: &Path, flags: OFlags) -> io::Result<File> {
    let flags = i32::try_from(flags.bits()).unwrap_or_default();
    File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(flags)
        .open(path)
}

/// Puts what was being done before what the system said.
pub(super) fn io_error(what: String) -> impl FnOnce(io::Error) -> ProbeError {
    move |source| ProbeError::Io { what, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn volume(bytes: u64, free_bytes: u64) -> Volume {
        Volume { kind: "ext4".into(), bytes, free_bytes }
    }

    #[test]
    fn five_percent_or_a_gibibyte_stay_free() {
        assert!(check_room(&volume(100 * GIB, 15 * GIB), 10 * GIB).is_ok());
        assert!(check_room(&volume(100 * GIB, 15 * GIB - 1), 10 * GIB).is_err());
        assert!(check_room(&volume(10 * GIB, 3 * GIB), 2 * GIB).is_ok());
        assert!(check_room(&volume(10 * GIB, 3 * GIB - 1), 2 * GIB).is_err());
        let error = check_room(&volume(GIB, GIB), u64::MAX).unwrap_err();
        assert_eq!(error.cause(), "refused");
        assert!(error.to_string().contains("1073741824 B are free"), "{error}");
    }

    #[test]
    fn the_folder_goes_with_the_target() {
        let place = tempfile::tempdir().unwrap();
        let (target, _) = Target::make(place.path(), &volume(GIB, GIB), true).unwrap();
        std::fs::write(target.file(), "x").unwrap();
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1);
        drop(target);
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    }

    #[test]
    fn memory_is_called_memory() {
        let place = tempfile::tempdir().unwrap();
        let tmpfs = Volume { kind: "tmpfs".into(), ..volume(GIB, GIB) };
        let (target, notes) = Target::make(place.path(), &tmpfs, true).unwrap();
        assert!(!target.direct && target.cache() == "warm" && notes[0].contains("in memory"), "{notes:?}");
        let (target, notes) = Target::make(place.path(), &volume(GIB, GIB), false).unwrap();
        assert!(!target.direct && target.cache() == "unknown" && !notes.is_empty());
    }

    #[test]
    fn a_place_that_is_not_there_is_named() {
        let error = Target::make(Path::new("/no/such/place"), &volume(GIB, GIB), true).unwrap_err();
        assert_eq!(error.cause(), "not_found");
        assert!(error.to_string().contains("/no/such/place") && error.hint().is_some());
    }
}
