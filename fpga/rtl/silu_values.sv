// The elements' part of SILU_GATE: silu(gate) * up.
//
// What:       ELEMENTS / 2 silu_pairs and the flags that run beside them.
// Latency: 13 cycles.
// Throughput: ELEMENTS values a cycle.
// Golden: fpga/golden/silu_gate.py::silu_gate
`default_nettype none

module silu_values #(
    parameter int ELEMENTS = 16 // values a cycle, even
) (
    input  wire                    clk,
    input  wire                    rst,
    input  wire                    in_valid,
    input  wire  [ELEMENTS*32-1:0] in_gate,
    input  wire  [ELEMENTS*32-1:0] in_up,
    input  wire signed [6:0]       shift,     // 32 - out_frac, clamped; stable
    output logic                   out_valid,
    output wire  [ELEMENTS*32-1:0] out_values
);
    logic [11:0] valid;  // bit k: an input of k + 1 cycles ago

    for (genvar i = 0; i < ELEMENTS / 2; i++) begin : g_pair
        silu_pair u_pair (
            .clk, .in_valid, .valid, .in_gate(in_gate[i*64 +: 64]), .in_up(in_up[i*64 +: 64]),
            .shift, .out_values(out_values[i*64 +: 64])
        );
    end

    always_ff @(posedge clk) begin
        {out_valid, valid} <= {valid, in_valid};
        if (rst) {out_valid, valid} <= '0;
    end
`ifndef SYNTHESIS
    if (ELEMENTS % 2 != 0) begin : g_check
        initial $fatal(1, "silu_values: ELEMENTS = %0d must be even", ELEMENTS);
    end
`endif
endmodule
`default_nettype wire
