"""A TCP relay that a test can cut in the middle of a frame, or turn into a black hole."""

import asyncio
import contextlib


class Relay:
    """Forwards to ``target``. ``cut_after``: bytes towards the server until the line is cut."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._server: asyncio.Server | None = None
        self._pumps: set[asyncio.Task] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.cut_after: int | None = None
        self.flowing = asyncio.Event()
        self.flowing.set()
        self.num_connections = 0
        self.address = ""

    async def __aenter__(self) -> "Relay":
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.cut()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    def cut(self) -> None:
        """Drop every connection now, as a crash of the network would: no FIN, a reset."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def _accept(self, reader, writer) -> None:
        self.num_connections += 1
        up_reader, up_writer = await asyncio.open_connection(*self._target)
        self._writers |= {writer, up_writer}
        for pump in (self._pump(reader, up_writer, upward=True), self._pump(up_reader, writer)):
            task = asyncio.get_running_loop().create_task(pump)
            self._pumps.add(task)
            task.add_done_callback(self._pumps.discard)

    async def _pump(self, reader, writer, *, upward: bool = False) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                await self.flowing.wait()
                if upward and self.cut_after is not None:
                    data = data[: self.cut_after]
                    self.cut_after -= len(data)
                writer.write(data)
                await writer.drain()
                if upward and self.cut_after == 0:
                    self.cut_after = None
                    self.cut()
                    return
        writer.close()
