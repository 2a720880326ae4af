# Copyright Spack Project Developers. See COPYRIGHT file for details.
#
# SPDX-License-Identifier: (Apache-2.0 OR MIT)
"""The recipe for Spack. Put the folder it is in into a repository of recipes, as packages/iogate (docs/install.md)."""

from spack.package import *


class Iogate(Package):
    """I/O scheduler for shared storage: orders and joins the requests of many applications, in mounts, forwarders and servers; jobs take turns."""

    homepage = "https://example.org/iogate"
    git = "https://example.org/iogate.git"

    license("Apache-2.0")

    version("main", branch="main")

    variant("mpi", default=True, description="The library for MPI programs, for the MPI that is chosen")
    variant("slurm", default=False, description="The plugin for Slurm: options of srun, sbatch and salloc")

    depends_on("c", type="build")
    depends_on("rust@1.95:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("mpi", when="+mpi")
    depends_on("slurm", when="+slurm")
    # Mounts of users other than root; a program that the kernel's FUSE needs nothing else of.
    depends_on("libfuse@3:", type="run")

    conflicts("platform=darwin", msg="iogate is for Linux")
    conflicts("platform=windows", msg="iogate is for Linux")

    def setup_build_environment(self, env):
        env.set("CARGO_HOME", join_path(self.stage.path, "cargo"))

    def install(self, spec, prefix):
        Executable("cargo")(
            "build",
            "--locked",
            "--release",
            *[f"--package={name}" for name in ("iogate", "iogate-preload", "iogate-turn", "iogate-gate", "iogate-agios")],
        )
        # They take the compiler of the MPI, and the headers of the Slurm, that were chosen.
        if spec.satisfies("+mpi"):
            with set_env(MPICC=spec["mpi"].mpicc):
                Executable("mpi/build")()
        if spec.satisfies("+slurm"):
            with set_env(CPPFLAGS=f"-I{spec['slurm'].prefix.include}"):
                Executable("slurm/build")()
        with set_env(PREFIX=prefix):
            Executable("scripts/install")("--built", "target/release")

    def setup_run_environment(self, env):
        if self.spec.satisfies("+slurm"):
            env.set("IOGATE_SLURM_PLUGIN", join_path(self.prefix.lib, "slurm", "iogate.so"))

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def check_install(self):
        Executable(join_path(self.prefix.bin, "iogate"))("--version")
