`default_nettype none
// Writes the result buffer: each drafted token's beat as soon as it is drawn, at the end a beat
// for each lane and the two header beats; then waits for the answers and says so.
//
// Latency: a memory write after the last beat.
// Throughput: one beat every two cycles.
// Golden: fpga/driver/buffers.py::encode_result
module result_unit #(
    parameter int LANES = 4,             // lanes of a command
    parameter int MAX_DRAFT_TOKENS = 16, // beats a lane has in the result buffer
    parameter logic [127:0] BUILD_HASH = 128'd0  // identity of this build, first byte lowest
) (
    input  wire                     clk,
    input  wire                     rst,
    input  wire  [63:0]             result_addr,
    // drafted tokens
    input  wire                     draw_valid,
    output logic                    draw_ready,
    input  wire  [7:0]              draw_lane,    // command lane
    input  wire  [15:0]             draw_step,
    input  wire  [511:0]            draw_beat,    // as in the result buffer
    // end of a start
    input  wire                     publish,      // pulse
    input  wire  [31:0]             status,
    input  wire  [31:0]             detail,
    input  wire  [31:0]             sequence_number,
    input  wire  [7:0]              num_lanes,    // 0 when status is an error
    input  wire  [63:0]             cycles,
    input  wire  [63:0]             beats_read,
    input  wire  [255:0]            artefact_sha,
    input  wire  [63:0]             passes,
    input  wire  [63:0]             tokens_read,
    input  wire  [LANES*16-1:0]     lane_slot,
    input  wire  [LANES*16-1:0]     lane_count,
    output logic                    published,    // pulse: everything written and answered
    // write requests to port 0
    output logic                    w_valid,
    input  wire                     w_ready,
    output logic [63:0]             w_addr,
    output logic [511:0]            w_data,
    output logic [63:0]             w_strobe,
    input  wire                     writes_idle   // port 0 has no unanswered write
);
    `include "registers.svh"
    `include "isa.svh"
    `include "tables.svh"
    `include "buffers.svh"
    localparam int LANE_BITS = LANES > 1 ? $clog2(LANES) : 1;
    localparam int QUIET = 4;  // cycles of writes_idle after which everything is in memory
    localparam [2:0] S_DRAWS = 3'd0, S_LANES = 3'd1, S_FIRST = 3'd2, S_SECOND = 3'd3, S_WAIT = 3'd4;

    logic [2:0] state, quiet;
    logic [7:0] lane;
    wire [LANE_BITS-1:0] at = lane[LANE_BITS-1:0];
    wire free = !w_valid || w_ready;
    assign w_strobe = '1;
    assign draw_ready = state == S_DRAWS && free;

    // address of a lane's beat, and of a token's
    wire [31:0] lane_beat = 32'd2 + 32'(lane) * 32'(1 + MAX_DRAFT_TOKENS);
    wire [31:0] draw_at = 32'd3 + 32'(draw_lane) * 32'(1 + MAX_DRAFT_TOKENS) + 32'(draw_step);

    always_ff @(posedge clk) begin
        published <= 1'b0;
        if (w_ready) w_valid <= 1'b0;
        case (state)
            S_DRAWS: begin
                if (draw_valid && free) begin
                    w_valid <= 1'b1;
                    w_addr <= result_addr + {26'd0, draw_at, 6'd0};
                    w_data <= draw_beat;
                end
                if (publish) state <= S_LANES;
                lane <= 8'd0;
            end
            S_LANES: if (free) begin
                if (lane == num_lanes) state <= S_FIRST;
                else begin
                    w_valid <= 1'b1;
                    w_addr <= result_addr + {26'd0, lane_beat, 6'd0};
                    w_data <= {448'd0, 16'd0, lane_count[at*16 +: 16], 16'd0, lane_slot[at*16 +: 16]};
                    lane <= lane + 8'd1;
                end
            end
            S_FIRST: if (free) begin
                w_valid <= 1'b1;
                w_addr <= result_addr;
                w_data <= {BUILD_HASH, `ARITHMETIC_VERSION, `ISA_VERSION, beats_read, cycles,
                    24'd0, num_lanes, detail, status, sequence_number, `REG_INTERFACE_VERSION, `RESULT_MAGIC_VALUE};
                state <= S_SECOND;
            end
            S_SECOND: if (free) begin
                w_valid <= 1'b1;
                w_addr <= result_addr + 64'd64;
                w_data <= {tokens_read, passes, 128'd0, artefact_sha};
                state <= S_WAIT;
                quiet <= 3'd0;
            end
            default: begin
`ifdef BUG_RESULT_UNIT_1
                quiet <= w_valid ? 3'd0 : quiet + 3'd1;
`else
                quiet <= w_valid || !writes_idle ? 3'd0 : quiet + 3'd1;
`endif
                if (quiet == 3'(QUIET)) begin
                    state <= S_DRAWS;
                    published <= 1'b1;
                end
            end
        endcase
        if (rst) begin
            state <= S_DRAWS;
            w_valid <= 1'b0;
        end
    end
endmodule
`default_nettype wire
