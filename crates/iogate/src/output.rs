//! Where results go: standard output, and files that appear whole or not at all.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use tempfile::NamedTempFile;

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
    /// A pipe, a terminal: nothing to rename.
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
            if fs::metadata(&path).is_ok_and(|found| !found.is_file()) {
                let file = fs::File::options().write(true).open(&path)?;
                return Ok(OutputFile { path, out: BufWriter::new(Target::Direct(file)) });
            }
            let folder =
                path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            // As any new file: what the umask leaves of rw-rw-rw-.
            let permissions = fs::Permissions::from_mode(0o666);
            let file =
                tempfile::Builder::new().prefix(".iogate-").permissions(permissions).tempfile_in(folder)?;
            Ok(OutputFile { path, out: BufWriter::with_capacity(1 << 16, Target::Beside(file)) })
        };
        let error =
            |error| anyhow::Error::new(error).context(format!("{} cannot be written", path.display()));
        begin().map_err(|cause| Failure::failed(error(cause)))
    }

    /// Puts the file in its place.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        let OutputFile { path, out } = self;
        let context = || format!("{} cannot be written", path.display());
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

/// Writes a whole file.
pub(crate) fn write_file(path: &Path, text: &str) -> Result<(), Failure> {
    let mut file = OutputFile::create(path)?;
    file.write_all(text.as_bytes()).with_context(|| format!("{} cannot be written", path.display()))?;
    file.finish()
}
