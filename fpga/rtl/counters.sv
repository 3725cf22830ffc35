`default_nettype none
// Counts cycles of a start in which each unit works, and shows them as a trace.
//
// What: bits of `busy`, in this order: 0 a beat arrives on some port, 1 on every port, 2 an array
//   takes a beat, 3 a MATMUL or HEAD is in execution, 4 vector unit, 5 ROPE_KV, 6 ATTENTION,
//   7 EMBED, 8 DRAW, 9 between instructions, 10 the reader waits for KV writes, 11 a start is in
//   work, 12 a MATMUL or HEAD waits for memory (no array takes a beat although one may).
// Latency: 1 cycle.
// Throughput: every cycle.
// Golden: none; what the utilisation picture is made of
module counters #(
    parameter int UNITS = 16  // bits counted
) (
    input  wire                 clk,
    input  wire                 clear,  // pulse: a start begins
    input  wire  [UNITS-1:0]    busy,
    output logic [UNITS-1:0]    trace,  // busy, a cycle later
    output logic [UNITS*32-1:0] counts
);
    always_ff @(posedge clk) begin
        trace <= busy;
        for (int i = 0; i < UNITS; i++)
            if (busy[i]) counts[i*32 +: 32] <= counts[i*32 +: 32] + 32'd1;
        if (clear) counts <= '0;
    end
endmodule
`default_nettype wire
