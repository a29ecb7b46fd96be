// The files of main/serve/page/ as bytes, and a table of them: name, bytes, size. Declared in main/serve/page.cpp.
    .macro page_file name
    .section .rodata
.Lname\@:
    .asciz "\name"
.Lbytes\@:
    .incbin "main/serve/page/\name"
.Lend\@:
    .section .data.rel.ro, "aw"
    .quad .Lname\@, .Lbytes\@, .Lend\@ - .Lbytes\@
    .endm

    .global chaski_page_begin
    .global chaski_page_end
    .section .data.rel.ro, "aw"
    .balign 8
chaski_page_begin:
    page_file "index.html"
    page_file "page.css"
    page_file "icon.svg"
    page_file "page.js"
    .section .data.rel.ro, "aw"
chaski_page_end:
    .section .note.GNU-stack, "", %progbits
