// The program tutti in the Python package; its code is in the library.
int tutti_program(int argc, char** argv);

int main(int argc, char** argv) {
    return tutti_program(argc, argv);
}
