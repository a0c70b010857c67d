//! One file a command: plain values in, an exit code out. The only place that knows all rooms.

pub mod check;
pub mod diff;
pub mod doctor;
pub mod dry_run;
pub mod init;
pub mod probe;
pub mod produce;
pub mod report;
pub mod resume;
pub mod run;
pub mod schema;
pub mod score;
pub mod source;
pub mod stages;

use std::{
    io::{Read as _, Write as _},
    path::Path,
};

use crate::{
    error::{Error, Exit},
    findings::visible,
    journal::open_regular,
};

/// What a command comes to: an exit code, or an error that has one.
pub type Result = std::result::Result<u8, Error>;

/// Writes data to stdout. A reader that has gone away (`planrun … | head`) is no error.
///
/// # Errors
/// When stdout cannot take it for another reason, such as a full disk.
pub fn print(text: &str) -> std::result::Result<(), Error> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Error::caused(Exit::NOT_MEASURED, "failed to write to stdout", &e))
        }
        _ => Ok(()),
    }
}

/// Says something to people on stderr. File names and values in it may hold anything: only line ends act.
pub fn talk(text: &str) {
    let lines: Vec<_> = text.split('\n').map(visible).collect();
    let mut out = std::io::stderr().lock();
    let _ = out.write_all(lines.join("\n").as_bytes());
}

/// Reads a text file; the error names it.
///
/// # Errors
/// When it is not there, is a folder, cannot be read or is no UTF-8.
pub fn read_text(path: &Path) -> std::result::Result<String, Error> {
    let bytes = read_bytes(path)?;
    String::from_utf8(bytes)
        .map_err(|_| Error::new(Exit::USAGE, format!("{} is no text (UTF-8)", path.display())))
}

/// The largest file that is read whole, in bytes: far more than any plan, rubric, template or scorecard has.
const MOST_BYTES: u64 = 256 << 20;

/// The bytes of a regular file that is not too large.
///
/// # Errors
/// When it is none, or cannot be read.
pub fn read_regular(path: &Path) -> std::io::Result<Vec<u8>> {
    read_to_end(open_regular(path)?)
}

fn read_to_end(file: std::fs::File) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(std::io::Error::other(format!("it is larger than {} MiB", MOST_BYTES >> 20)));
    }
    Ok(bytes)
}

/// Reads a file; the error names it and says what to do. What the shell hands over (`/dev/stdin`, `<(…)`) may be a pipe.
///
/// # Errors
/// When it is not there, is a folder or another thing than a file, is too large or cannot be read.
pub fn read_bytes(path: &Path) -> std::result::Result<Vec<u8>, Error> {
    if path.is_dir() {
        return Err(Error::new(Exit::USAGE, format!("{} is a folder", path.display())).hint("name a file"));
    }
    let is_handed_over =
        path == Path::new("/dev/stdin") || path.starts_with("/dev/fd") || path.starts_with("/proc/self/fd");
    let read =
        if is_handed_over { std::fs::File::open(path).and_then(read_to_end) } else { read_regular(path) };
    read.map_err(|e| {
        let error = Error::caused(Exit::USAGE, format!("failed to read {}", path.display()), &e);
        if e.kind() == std::io::ErrorKind::NotFound {
            error.hint("check the name; `planrun --help` lists the commands")
        } else {
            error
        }
    })
}

/// Replaces a file as a whole: readers see the old one or the new one.
///
/// # Errors
/// When the folder cannot be written or the disk is full; the old file is then untouched.
pub fn replace(path: &Path, text: &str) -> std::result::Result<(), Error> {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let write = || -> std::io::Result<()> {
        let mut file = tempfile::Builder::new()
            .prefix(".planrun-")
            .permissions(std::fs::Permissions::from_mode(0o644))
            .tempfile_in(dir)?;
        file.write_all(text.as_bytes())?;
        file.as_file().sync_data()?;
        file.persist(path).map_err(|e| e.error)?;
        Ok(())
    };
    write().map_err(|e| Error::caused(Exit::NOT_MEASURED, format!("failed to write {}", path.display()), &e))
}
