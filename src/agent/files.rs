//! Files in and out of a task's folder. Names come from afar: none may lead out of the folder.

use std::{
    fs::{self, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Component, Path, PathBuf},
};

use crate::wire::{Blob, CHUNK, Up};

/// How many files one request may bring.
const MOST_FILES: usize = 1000;

/// How many names of what was left out one answer lists.
const MOST_LEFT_OUT: usize = 50;

/// Whether an error is about the disk rather than about the request.
pub(super) fn is_disk(e: &io::Error) -> bool {
    use io::ErrorKind::{PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    matches!(e.kind(), StorageFull | ReadOnlyFilesystem | QuotaExceeded | PermissionDenied)
}

/// The path below a folder, if it stays there.
fn below(folder: &Path, path: &Path) -> io::Result<PathBuf> {
    let plain = path.components().all(|c| matches!(c, Component::Normal(_) | Component::CurDir));
    if plain && !path.as_os_str().is_empty() {
        Ok(folder.join(path))
    } else {
        Err(io::Error::other("the name leads out of the folder"))
    }
}

/// Appends to a file.
pub(super) fn put(folder: &Path, path: &str, data: &[u8], executable: bool) -> io::Result<()> {
    let target = below(folder, Path::new(path))?;
    if let Some(parent) = target.parent() {
        fs::create_dir_all(parent)?;
    }
    let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(&target)?;
    file.write_all(data)?;
    if executable {
        fs::set_permissions(&target, fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// Sends a file, or all files below a folder; links are not followed. Returns what was left out and why.
pub(super) fn get(folder: &Path, path: &Path, limit: u64, mut tell: impl FnMut(Up)) -> Vec<String> {
    let mut left_out = Vec::new();
    let mut left = limit;
    let start = match below(folder, path).and_then(|start| no_link_to(folder, path).map(|()| start)) {
        Ok(start) => start,
        Err(e) => return vec![format!("{}: {e}", path.display())],
    };
    let mut more = 0;
    let mut waiting = vec![start];
    let mut count = 0;
    while let Some(next) = waiting.pop() {
        let name = next.strip_prefix(folder).unwrap_or(&next).display().to_string();
        let sent = fs::symlink_metadata(&next).and_then(|about| {
            if about.is_dir() {
                let mut entries: Vec<_> =
                    fs::read_dir(&next)?.filter_map(Result::ok).map(|e| e.path()).collect();
                entries.sort_unstable_by(|a, b| b.cmp(a));
                waiting.extend(entries);
                return Ok(());
            }
            if !about.is_file() {
                return Err(io::Error::other("neither file nor folder"));
            }
            count += 1;
            if about.len() > left || count > MOST_FILES {
                return Err(io::Error::other("beyond the limit of what is fetched"));
            }
            left -= send(&next, &name, about.len(), &mut tell)?;
            Ok(())
        });
        if let Err(e) = sent {
            if left_out.len() < MOST_LEFT_OUT {
                left_out.push(format!("{name}: {e}"));
            } else {
                more += 1;
            }
        }
    }
    if more > 0 {
        left_out.push(format!("{more} more"));
    }
    left_out
}

/// Says whether a link stands on the way to what is asked for: it could lead anywhere.
fn no_link_to(folder: &Path, path: &Path) -> io::Result<()> {
    let mut way = folder.to_owned();
    for part in path.parent().into_iter().flat_map(Path::components) {
        way.push(part);
        if fs::symlink_metadata(&way)?.is_symlink() {
            return Err(io::Error::other("a link stands on the way"));
        }
    }
    Ok(())
}

/// Removes a folder and all in it, also what was made so that it cannot be removed.
pub(super) fn remove_all(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {}
        other => return other,
    }
    let mut waiting = vec![folder.to_owned()];
    while let Some(next) = waiting.pop() {
        fs::set_permissions(&next, fs::Permissions::from_mode(0o700))?;
        for entry in fs::read_dir(&next)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                waiting.push(entry.path());
            }
        }
    }
    fs::remove_dir_all(folder)
}

/// Sends a file of which no more than `length` bytes are taken, should it grow meanwhile.
fn send(file: &Path, name: &str, length: u64, tell: &mut impl FnMut(Up)) -> io::Result<u64> {
    let mut from = fs::File::open(file)?.take(length);
    let mut sent = 0;
    loop {
        let mut data = Vec::with_capacity(CHUNK);
        from.by_ref().take(CHUNK as u64).read_to_end(&mut data)?;
        sent += data.len() as u64;
        let last = data.len() < CHUNK || sent >= length;
        tell(Up::File { path: name.to_owned(), data: Blob(data), last });
        if last {
            return Ok(sent);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_lead_out() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["../x", "/etc/x", "a/../../x", ""] {
            assert!(put(folder.path(), name, b"x", false).is_err(), "{name}");
            assert!(!get(folder.path(), Path::new(name), 100, |_| {}).is_empty(), "{name}");
        }
        put(folder.path(), "a/b.txt", b"one ", false).unwrap();
        put(folder.path(), "a/b.txt", b"two", false).unwrap();
        let mut got = Vec::new();
        let left_out = get(folder.path(), Path::new("a"), 100, |up| got.push(up));
        assert!(left_out.is_empty());
        assert_eq!(got, [Up::File { path: "a/b.txt".into(), data: Blob(b"one two".into()), last: true }]);
        assert_eq!(get(folder.path(), Path::new("a"), 3, |_| {}).len(), 1, "beyond the limit");
    }

    #[test]
    fn links_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/etc/passwd", folder.path().join("link")).unwrap();
        let mut got = 0;
        let left_out = get(folder.path(), Path::new("link"), 1 << 20, |_| got += 1);
        assert_eq!((got, left_out.len()), (0, 1));
    }
}
