# Packages the draft card as a Vitis RTL kernel (.xo), or as plain IP for a Zynq block design.
#
#   vivado -mode batch -source fpga/vivado/package_kernel.tcl -tclargs BUILD_DIR
#
# BUILD_DIR comes from `python -m fpga.vivado.generate`. Follows UG1393 (RTL kernels) and UG1118.
# NOT YET RUN under Vivado.
if {[llength $argv] != 1} { error "package_kernel.tcl: give the build folder" }
set build [file normalize [lindex $argv 0]]
source [file join $build settings.tcl]

create_project -force -part $part draft_card [file join $build project]
if {$board ne ""} { set_property board_part $board [current_project] }
add_files -norecurse $rtl_files
add_files -norecurse [file join $build $top.sv]
set_property include_dirs $include_dirs [current_fileset]
set_property top $top [current_fileset]
update_compile_order -fileset sources_1

set ip_dir [file join $build ip]
ipx::package_project -root_dir $ip_dir -vendor hetero -library kernel -taxonomy /KernelIP \
    -import_files -set_current false
ipx::unload_core [file join $ip_dir component.xml]
ipx::edit_ip_in_project -upgrade true -name edit_draft_card -directory $ip_dir \
    [file join $ip_dir component.xml]
set core [ipx::current_core]
set_property name draft_card $core
set_property version 1.0 $core
set_property core_revision 1 $core
if {$flow eq "vitis"} {
    set_property sdx_kernel true $core
    set_property sdx_kernel_type rtl $core
    set_property vitis_drc {ctrl_protocol ap_ctrl_chain} $core
    set_property ipi_drc {ignore_freq_hz true} $core
}

# Clocks and resets: every bus follows ap_clk; the frequency is the linker's choice.
foreach bus [ipx::get_bus_interfaces -of_objects $core] {
    set name [get_property NAME $bus]
    if {$name in {ap_clk ap_rst_n interrupt}} continue
    ipx::associate_bus_interfaces -busif $name -clock ap_clk $core
}
set clock [ipx::get_bus_interfaces ap_clk -of_objects $core]
foreach parameter [ipx::get_bus_parameters FREQ_HZ -of_objects $clock] {
    ipx::remove_bus_parameter FREQ_HZ $clock
}

# Registers: the HWH of a Zynq design and the kernel's arguments both come from here.
set map [ipx::add_memory_map s_axi_control $core]
set_property slave_memory_map_ref s_axi_control \
    [ipx::get_bus_interfaces s_axi_control -of_objects $core]
set block [ipx::add_address_block reg0 $map]
set_property range $control_bytes $block
set port_of [dict create]
foreach argument $arguments { dict set port_of [lindex $argument 0] [lindex $argument 2] }
foreach entry $registers {
    lassign $entry name offset bits access
    set reg [ipx::add_register $name $block]
    set_property address_offset $offset $reg
    set_property size $bits $reg
    set_property access $access $reg
    if {[dict exists $port_of $name]} {
        set param [ipx::add_register_parameter ASSOCIATED_BUSIF $reg]
        set_property value [format "m%02d_axi" [dict get $port_of $name]] $param
    }
}

ipx::create_xgui_files $core
ipx::update_checksums $core
ipx::check_integrity -kernel $core
ipx::save_core $core
close_project -delete
if {$flow eq "vitis"} {
    package_xo -force -xo_path [file join $build draft_card.xo] -kernel_name draft_card \
        -ip_directory $ip_dir -ctrl_protocol ap_ctrl_chain
}
