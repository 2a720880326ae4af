//! Where results go: standard output, and files that appear whole or not at all.

use std::fs;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow};
use tempfile::NamedTempFile;

use crate::attempt::Attempt;
use crate::failure::Failure;

/// Prints a result. A reader that has seen enough (`| head`) is not an error.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::failed(anyhow::Error::new(error).context("standard output cannot be written")))
        }
        _ => Ok(()),
    }
}

/// A file being written: beside its place, until [`OutputFile::finish`] renames it there. Dropped, it leaves no trace.
#[derive(Debug)]
pub(crate) struct OutputFile {
    path: PathBuf,
    out: BufWriter<Target>,
}

#[derive(Debug)]
enum Target {
    Beside(NamedTempFile),
    /// A pipe, a terminal, standard output: nothing to rename.
    Direct(fs::File),
}

impl Write for Target {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Target::Beside(file) => file.write(bytes),
            Target::Direct(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl OutputFile {
    /// Begins a file that will be at `path`.
    pub(crate) fn create(path: &Path) -> Result<OutputFile, Failure> {
        let begin = || -> io::Result<OutputFile> {
            // The file that a symbolic link names is replaced, not the link.
            let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
            if let Some(file) = own_stream(&path)? {
                return Ok(OutputFile { path, out: BufWriter::new(Target::Direct(file)) });
            }
            if fs::metadata(&path).is_ok_and(|found| !found.is_file()) {
                let file = fs::File::options().write(true).open(&path)?;
                return Ok(OutputFile { path, out: BufWriter::new(Target::Direct(file)) });
            }
            let folder =
                path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            // As any new file: what the umask leaves of rw-rw-rw-.
            let permissions = fs::Permissions::from_mode(0o666);
            let file =
                tempfile::Builder::new().prefix(".iogate-").permissions(permissions).tempfile_in(folder);
            let file = file.map_err(without_path)?;
            Ok(OutputFile { path, out: BufWriter::with_capacity(1 << 16, Target::Beside(file)) })
        };
        let error = |error| anyhow::Error::new(error).context(Attempt::write(path.display()));
        begin().map_err(|cause| Failure::failed(error(cause)))
    }

    /// Writes the rest, and puts the file in its place.
    pub(crate) fn finish_with(mut self, text: &str) -> Result<(), Failure> {
        self.write_all(text.as_bytes()).with_context(|| Attempt::write(self.path.display()))?;
        self.finish()
    }

    /// Puts the file in its place.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        let OutputFile { path, out } = self;
        let context = || Attempt::write(path.display());
        match out.into_inner().map_err(io::IntoInnerError::into_error).with_context(context)? {
            Target::Beside(file) => {
                file.persist(&path).with_context(context)?;
            }
            Target::Direct(_) => {}
        }
        Ok(())
    }
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// A temporary file has a name that nobody gave: it is left out of what people read.
pub(crate) fn without_path(error: io::Error) -> io::Error {
    match error.to_string().split_once(" at path \"") {
        Some((cause, _)) => io::Error::new(error.kind(), cause),
        None => error,
    }
}

/// Standard output or standard error, if that is what the path names (as /dev/stdout does, also when it is
/// redirected to a file, which must not be replaced under the stream).
fn own_stream(path: &Path) -> io::Result<Option<fs::File>> {
    let Ok(named) = fs::metadata(path) else { return Ok(None) };
    for stream in [io::stdout().as_fd().try_clone_to_owned(), io::stderr().as_fd().try_clone_to_owned()] {
        let Ok(stream) = stream.map(fs::File::from) else { continue };
        let open = stream.metadata()?;
        // A device such as /dev/null or a terminal is as well opened by its name.
        if (open.is_file() || open.file_type().is_fifo())
            && (open.dev(), open.ino()) == (named.dev(), named.ino())
        {
            return Ok(Some(stream));
        }
    }
    Ok(None)
}

/// Whether two paths name one regular file, or the place for one. Pipes and devices may be named twice.
pub(crate) fn same_file(one: &Path, other: &Path) -> bool {
    match (fs::metadata(one), fs::metadata(other)) {
        (Ok(one), Ok(other)) => one.is_file() && (one.dev(), one.ino()) == (other.dev(), other.ino()),
        (Err(_), Err(_)) => std::path::absolute(one).ok() == std::path::absolute(other).ok(),
        _ => false,
    }
}

/// Prints a text, or with `--watch SECONDS` again and again what it is by then: in place on a terminal; `is_json` as lines.
pub(crate) fn print_or_watch(
    seconds: Option<f64>,
    is_json: bool,
    shown: impl Fn() -> Result<String, Failure>,
) -> Result<(), Failure> {
    let Some(seconds) = seconds else { return print(&shown()?) };
    let pause = Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|pause| *pause >= Duration::from_millis(50))
        .ok_or_else(|| Failure::usage(anyhow!("--watch {seconds}: expected at least 0.05 seconds")))?;
    let clear = std::io::stdout().is_terminal() && !is_json;
    let mut first = true;
    loop {
        let shown = shown()?;
        if clear {
            // Home, the text with each line's rest erased, then the rest of the screen: no flicker.
            print(&format!("\x1b[H{}\x1b[J", shown.replace('\n', "\x1b[K\n")))?;
        } else {
            print(&format!("{}{shown}", if first || is_json { "" } else { "\n" }))?;
        }
        first = false;
        std::thread::sleep(pause);
    }
}
